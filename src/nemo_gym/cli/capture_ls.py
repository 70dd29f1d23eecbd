"""`gym capture ls`: the captured rollouts, one line each."""

import gc
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import click

from nemo_gym.cli.capture_dir import capture_dir_option, open_store
from nemo_gym.cli.capture_times import utc_text
from nemo_gym.cli.counted import counted
from nemo_gym.cli.options import example, json_option
from nemo_gym.cli.output import print_json, print_table
from nemo_gym.cli.printable import on_one_line
from nemo_gym.observability.summaries import RolloutSummary, summarize_all

__all__ = ["ls"]

_COLUMNS = ("rollout", "calls", "tokens in", "tokens out", "errors", "state", "last call (UTC)")
_RIGHT = ("calls", "tokens in", "tokens out")


@click.command(epilog=example("gym capture ls --dir results/model-calls"))
@capture_dir_option
@json_option
def ls(directory: Path | None, *, as_json: bool) -> None:
    """List captured rollouts: calls, tokens, errors, and what is wrong with them."""
    store = open_store(directory)
    gc.disable()  # nothing here makes rings, and looking for them takes a tenth of the time
    summaries = summarize_all(store)
    if as_json:
        for summary in summaries:
            print_json(asdict(summary), indent=None)
        return
    rows = [_row(summary) for summary in summaries]
    print_table(_COLUMNS, rows, right=_RIGHT)
    click.echo(f"{counted(len(rows), 'rollout')} in {on_one_line(str(store.directory))}")


def _row(summary: RolloutSummary) -> list[object]:
    errors = ", ".join(f"{name} {count}" for name, count in sorted(summary.errors.items()))
    return [
        summary.rollout_id,
        summary.calls,
        summary.tokens_in,
        summary.tokens_out,
        errors or None,
        ", ".join(_states(summary)) or "ok",
        utc_text(summary.completed_at, "%Y-%m-%d %H:%M:%S"),
    ]


def _states(summary: RolloutSummary) -> Iterable[str]:
    if summary.unreadable:
        yield f"unreadable: {summary.unreadable}"
    if summary.damaged:
        yield f"{summary.damaged} damaged"
    if summary.incomplete:
        yield "incomplete"
    if summary.pending:
        yield "pending"
    if None in {summary.incomplete, summary.pending}:
        yield "not known whether complete"
