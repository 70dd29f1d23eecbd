"""`gym capture verify`: says what in a capture directory is damaged, missing or under way."""

import sys
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from nemo_gym.capture.store import CaptureStore
from nemo_gym.cli.capture_dir import capture_dir_option, open_store
from nemo_gym.cli.counted import counted
from nemo_gym.cli.options import example, json_option
from nemo_gym.cli.output import print_json
from nemo_gym.cli.printable import on_one_line
from nemo_gym.observability.raw_lines import raw_lines
from nemo_gym.observability.summaries import is_row, summarize_all

__all__ = ["verify"]


@dataclass(frozen=True, slots=True)
class _Finding:
    rollout_id: str | None
    """None: not known."""
    kind: str
    """`damaged`, `unreadable`, `incomplete` or `pending`."""
    detail: str


@click.command(epilog=example("gym capture verify --dir results/model-calls"))
@capture_dir_option
@json_option
def verify(directory: Path | None, *, as_json: bool) -> None:
    """Check every rollout for damaged or missing rows and calls under way; exit 1 if any."""
    store = open_store(directory)
    rollouts, calls = 0, 0
    findings: list[_Finding] = []
    for summary in summarize_all(store):
        rollouts += 1
        calls += summary.calls
        if summary.unreadable:
            findings.append(_Finding(summary.rollout_id, "unreadable", summary.unreadable))
        elif summary.damaged:
            findings += _damaged(store, summary.rollout_id)
        if summary.incomplete:
            findings.append(_Finding(summary.rollout_id, "incomplete", "a row is missing"))
        if summary.pending:
            findings.append(_Finding(summary.rollout_id, "pending", "a call is under way"))
    # Asked last: a rollout whose first call came meanwhile has no file to be found by.
    unseen = store.pending_count() - sum(finding.kind == "pending" for finding in findings)
    if unseen > 0:
        what = f"calls are under way in {counted(unseen, 'more rollout')}"
        findings.append(_Finding(None, "pending", what))
    if as_json:
        found = [asdict(finding) for finding in findings]
        print_json({"rollouts": rollouts, "calls": calls, "findings": found})
    else:
        for finding in findings:
            of = "" if finding.rollout_id is None else f"{finding.rollout_id}: "
            click.echo(on_one_line(f"{of}{finding.kind}: {finding.detail}"))
        verdict = counted(len(findings), "finding") if findings else "all whole"
        what = f"{counted(rollouts, 'rollout')}, {counted(calls, 'call')}"
        click.echo(on_one_line(f"{what} in {store.directory}: {verdict}"))
    sys.exit(1 if findings else 0)


def _damaged(store: CaptureStore, rollout_id: str) -> Generator[_Finding]:
    for line in raw_lines(store, rollout_id):
        if not is_row(line):
            size = counted(len(line.body), "byte")
            what = f"{line.path.name}: no row in {size} at {line.offset}"
            yield _Finding(rollout_id, "damaged", what)
