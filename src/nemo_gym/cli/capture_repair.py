"""`gym capture repair`: damaged bytes out of the way, every good row kept."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click

from nemo_gym.cli.capture_dir import capture_dir_option, open_store
from nemo_gym.cli.counted import counted
from nemo_gym.cli.options import example, json_option
from nemo_gym.observability.repair import Repaired, repair_rollout
from nemo_gym.observability.summaries import summarize_all

__all__ = ["repair"]


@click.command(epilog=example("gym capture repair --dir results/model-calls"))
@capture_dir_option
@json_option
def repair(directory: Path | None, *, as_json: bool) -> None:
    """Move damaged bytes to .nemo_gym/damaged; lose no good row. Exit 1 when a file is left."""
    store = open_store(directory)
    done: list[Repaired] = []
    left: list[str] = []
    for summary in summarize_all(store):
        if summary.damaged and summary.pending:
            left.append(f"{summary.rollout_id}: a call is under way; try again when it has ended")
        elif summary.damaged:
            done += repair_rollout(store, summary.rollout_id)
    if as_json:
        repaired = [
            {k: str(v) if isinstance(v, Path) else v for k, v in asdict(r).items()} for r in done
        ]
        click.echo(json.dumps({"repaired": repaired, "left": left}, indent=2))
    else:
        for one in done:
            click.echo(
                f"{one.path.name}: {counted(one.moved, 'damaged line')} "
                f"({counted(one.moved_bytes, 'byte')}) "
                f"moved to {one.aside}"
            )
        for line in left:
            click.echo(line, err=True)
        click.echo(f"{counted(len(done), 'file')} repaired in {store.directory}")
    sys.exit(1 if left else 0)
