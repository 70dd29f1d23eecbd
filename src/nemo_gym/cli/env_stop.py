"""`gym env stop`: stop live runs and wait until nothing of them is left."""

import os
import signal
import time

import click

from nemo_gym.errors import UserMistake
from nemo_gym.runtime.registry import LiveRun, live_runs, process_start

__all__ = ["stop"]

_EXAMPLE = """\b
Example:
  gym env stop
"""
_PATIENCE_S = 5.0
_POLL_S = 0.05


@click.command(epilog=_EXAMPLE)
@click.argument("run_id", required=False)
@click.option("--all", "every", is_flag=True, help="Stop every live run of this user.")
def stop(run_id: str | None, *, every: bool) -> None:
    """Stop the servers of RUN_ID, or of the only run that 'gym env start' keeps alive."""
    for run in _chosen(run_id, every=every):
        os.kill(run.pid, signal.SIGTERM)
        if _gone(run):
            click.echo(f"stopped {run.run_id} ({run.kind})")
        else:
            os.kill(run.pid, signal.SIGKILL)
            click.echo(f"killed {run.run_id} ({run.kind}): it did not stop in {_PATIENCE_S:g} s")


def _chosen(run_id: str | None, *, every: bool) -> list[LiveRun]:
    runs = live_runs()
    if every:
        return runs
    if run_id is not None:
        found = [run for run in runs if run.run_id == run_id]
        if not found:
            known = ", ".join(run.run_id for run in runs) or "none"
            raise UserMistake(f"no live run {run_id!r}", mend=f"live runs: {known}")
        return found
    started = [run for run in runs if run.kind == "env start"]
    if not started:
        raise UserMistake("no servers are running", mend="'gym env status' lists live runs")
    if len(started) > 1:
        known = ", ".join(run.run_id for run in started)
        raise UserMistake(f"{len(started)} runs are alive: {known}", mend="name one, or give --all")
    return started


def _gone(run: LiveRun) -> bool:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if process_start(run.pid) != run.process_started:
            return True
        time.sleep(_POLL_S)  # nobody is told of the end of a process that is not his child
    return False
