"""`gym capture verify`: says what in a capture directory is damaged, missing or under way."""

import sys
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from nemo_gym.capture.reading import strange_names
from nemo_gym.capture.store import CaptureStore
from nemo_gym.cli.capture_dir import capture_dir_option, open_store
from nemo_gym.cli.counted import counted
from nemo_gym.cli.options import example, json_option
from nemo_gym.cli.output import print_json
from nemo_gym.cli.printable import on_one_line
from nemo_gym.observability.missing import why_incomplete
from nemo_gym.observability.raw_lines import is_row, raw_lines
from nemo_gym.observability.summaries import RolloutSummary, summarize_all

__all__ = ["verify"]


@dataclass(frozen=True, slots=True)
class _Finding:
    rollout_id: str | None
    """None: not known, or it is about none."""
    kind: str
    """`damaged`, `unreadable`, `incomplete`, `pending`, `unknown` or `stray`."""
    detail: str


@click.command(epilog=example("gym capture verify --dir results/model-calls"))
@capture_dir_option
@json_option
def verify(directory: Path | None, *, as_json: bool) -> None:
    """Check every rollout for damaged or missing rows and calls under way; exit 1 if any."""
    store = open_store(directory)
    calls = 0
    rollouts: list[str] = []
    findings: list[_Finding] = []
    standing = store.standing()
    for summary in summarize_all(store, standing, every_byte=True):
        rollouts.append(summary.rollout_id)
        calls += summary.calls
        findings += _findings(store, summary)
    findings += _of_the_directory(store, standing.problem, rollouts)
    if as_json:
        found = [asdict(finding) for finding in findings]
        print_json({"rollouts": len(rollouts), "calls": calls, "findings": found})
    else:
        for finding in findings:
            of = "" if finding.rollout_id is None else f"{finding.rollout_id}: "
            click.echo(on_one_line(f"{of}{finding.kind}: {finding.detail}"))
        verdict = counted(len(findings), "finding") if findings else "all whole"
        what = f"{counted(len(rollouts), 'rollout')}, {counted(calls, 'call')}"
        click.echo(on_one_line(f"{what} in {store.directory}: {verdict}"))
    sys.exit(1 if findings else 0)


def _findings(store: CaptureStore, summary: RolloutSummary) -> Generator[_Finding]:
    """Yield what is wrong with one rollout."""
    rollout_id = summary.rollout_id
    if summary.unreadable:
        yield _Finding(rollout_id, "unreadable", summary.unreadable)
    elif summary.damaged:
        yield from _damaged(store, rollout_id)
    if summary.incomplete:
        yield _Finding(rollout_id, "incomplete", "; ".join(why_incomplete(store, rollout_id)))
    if summary.pending:
        yield _Finding(rollout_id, "pending", "a call is under way")


def _of_the_directory(
    store: CaptureStore, problem: str | None, rollouts: list[str]
) -> Generator[_Finding]:
    """Yield what is wrong and belongs to none of these rollouts."""
    for name in strange_names(store.layout):
        yield _Finding(None, "stray", f"{name}: its name is no rollout id, so nobody reads it")
    if problem is not None:
        what = f"whether calls are under way or rows are missing cannot be told: {problem}"
        yield _Finding(None, "unknown", what)
        return
    # Asked last: a rollout whose first call came meanwhile has no file to be found by.
    unseen = store.pending_count(beside=rollouts)
    if unseen > 0:
        what = f"calls are under way in {counted(unseen, 'more rollout')}"
        yield _Finding(None, "pending", what)


def _damaged(store: CaptureStore, rollout_id: str) -> Generator[_Finding]:
    for line in raw_lines(store, rollout_id):
        if not is_row(line):
            size = counted(len(line.body), "byte")
            what = f"{line.path.name}: no row in {size} at {line.offset}"
            yield _Finding(rollout_id, "damaged", what)
