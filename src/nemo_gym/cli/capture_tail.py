"""`gym capture tail`: model calls as they are captured, one line each."""

import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import click

from nemo_gym.cli.capture_dir import capture_dir_option, open_store
from nemo_gym.cli.capture_times import utc_text
from nemo_gym.cli.options import example
from nemo_gym.cli.output import print_stored_line
from nemo_gym.cli.printable import on_one_line
from nemo_gym.observability.facts import row_in
from nemo_gym.observability.follow import Follower, pause_after
from nemo_gym.records.model_call import ModelCallRecord, build
from nemo_gym.wire.transcript import response_utterances

__all__ = ["tail"]

_SHOWN = 60


@click.command(epilog=example("gym capture tail -f --dir results/model-calls"))
@capture_dir_option
@click.option(
    "-n",
    "count",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    metavar="N",
    help="Calls to begin with.",
)
@click.option("-f", "--follow", is_flag=True, help="Keep printing calls as they come.")
@click.option(
    "--raw",
    "--json",
    "raw",
    is_flag=True,
    help="Print the stored lines as they are; a terminal gets control characters escaped.",
)
def tail(directory: Path | None, count: int, *, follow: bool, raw: bool) -> None:
    """Print the last model calls; with -f, the next ones as they come, until Ctrl-C."""
    store = open_store(directory)
    follower = Follower(store)
    _print(follower.last_lines(count), raw=raw)
    _name_unreadable(follower)
    looked = 0.0
    while follow:
        time.sleep(pause_after(looked))  # no file system tells of all that others write
        began = time.process_time()
        _print(follower.new_lines(), raw=raw)
        _name_unreadable(follower)
        looked = time.process_time() - began


def _name_unreadable(follower: Follower) -> None:
    for path, reason in follower.newly_unreadable().items():
        click.echo(on_one_line(f"{path.name} cannot be read: {reason}"), err=True)


def _print(lines: Iterable[tuple[str, bytes]], *, raw: bool) -> None:
    for rollout_id, line in lines:
        if raw:
            print_stored_line(line)
            continue
        row = row_in(line)
        text = "damaged line" if row is None else _line(build(row, 0))
        click.echo(f"{rollout_id}  {text}")


def _line(record: ModelCallRecord) -> str:
    texts = (u.text[: _SHOWN + 1] for u in response_utterances(record.response or {}))
    said = " ".join(islice(texts, _SHOWN)).replace("\n", " ")
    known = [
        utc_text(record.completed_at, "%H:%M:%SZ") or "--:--:--Z",
        record.dialect or "?",
        record.model or "?",
        str(record.status_code or "-"),
        record.error_category or record.response_status or "",
        f"{_number(record.tokens_in)}→{_number(record.tokens_out)}",
        "? ms" if record.latency_total_ms is None else f"{record.latency_total_ms:.0f} ms",
        said if len(said) <= _SHOWN else said[: _SHOWN - 1] + "…",
    ]
    return on_one_line("  ".join(known))


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)
