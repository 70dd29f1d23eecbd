"""`gym capture repair`: damaged bytes out of the way, every good row kept."""

import sys
from collections.abc import Generator
from dataclasses import asdict
from pathlib import Path

import click

from nemo_gym.cli.capture_dir import capture_dir_option, open_store
from nemo_gym.cli.counted import counted
from nemo_gym.cli.options import example, json_option
from nemo_gym.cli.output import print_json
from nemo_gym.cli.printable import on_one_line
from nemo_gym.observability.repair import Repaired, repair_rollout
from nemo_gym.observability.summaries import summarize_all

__all__ = ["repair"]


@click.command(epilog=example("gym capture repair --dir results/model-calls"))
@capture_dir_option
@json_option
def repair(directory: Path | None, *, as_json: bool) -> None:
    """Move damaged bytes to .nemo_gym/damaged; lose no good row. Exit 1 when a file is left.

    What was damaged may have been a row: its rollout stays marked as incomplete.
    """
    store = open_store(directory)
    done: list[Repaired] = []
    left: list[str] = []
    standing = store.standing()
    for summary in summarize_all(store, standing, every_byte=True):
        if summary.unreadable:
            left.append(f"{summary.rollout_id}: cannot be read: {summary.unreadable}")
        elif summary.damaged and summary.pending:
            left.append(f"{summary.rollout_id}: a call is under way; try again when it has ended")
        elif summary.damaged and summary.pending is None:
            why = f"it cannot be told whether a call is under way: {standing.problem}"
            left.append(f"{summary.rollout_id}: left as it was: {why}")
        elif summary.damaged:
            try:
                done += repair_rollout(store, summary.rollout_id)
            except OSError as error:
                left.append(f"{summary.rollout_id}: left as it was: {error.strerror or error}")
    if as_json:
        repaired = [
            {k: str(v) if isinstance(v, Path) else v for k, v in asdict(r).items()} for r in done
        ]
        print_json({"repaired": repaired, "left": left})
    else:
        for one in done:
            click.echo(on_one_line(f"{one.path.name}: {', '.join(_told(one))}"))
        for line in left:
            click.echo(on_one_line(line), err=True)
        click.echo(on_one_line(f"{counted(len(done), 'file')} repaired in {store.directory}"))
    sys.exit(1 if left else 0)


def _told(one: Repaired) -> Generator[str]:
    if one.rows_parted:
        lines = "a line of its own" if one.rows_parted == 1 else "lines of their own"
        yield f"{counted(one.rows_parted, 'row')} given {lines}"
    if one.aside is not None:
        size = counted(one.moved_bytes, "byte")
        yield f"{counted(one.moved, 'damaged line')} ({size}) moved to {one.aside}"
        yield "the rollout is marked as incomplete"
