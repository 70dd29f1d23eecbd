"""Processes of a test: who belongs to whom, and whether they are gone."""

import subprocess
import time
from pathlib import Path

__all__ = ["alive_after", "children_of", "family_of", "wait_for_lines"]


def family_of(pid: int) -> set[int]:
    """Return a process and all that descend from it."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,ppid="],  # noqa: S607 - wherever ps is
        capture_output=True,
        text=True,
        check=True,
    )
    parents = {int(a): int(b) for a, b in (line.split() for line in listed.stdout.splitlines())}
    family = {pid}
    while grown := {p for p, parent in parents.items() if parent in family} - family:
        family |= grown
    return family


def children_of(pid: int) -> list[int]:
    """Return the processes below one, oldest first."""
    return sorted(family_of(pid) - {pid})


def alive_after(pids: set[int], patience_s: float) -> set[int]:
    """Return which of the processes are still alive once all are gone or patience has ended."""
    deadline = time.monotonic() + patience_s
    while (left := {pid for pid in pids if _is_alive(pid)}) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def wait_for_lines(path: Path, count: int, patience_s: float = 30) -> None:
    """Wait until a file has so many lines."""
    deadline = time.monotonic() + patience_s
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        assert time.monotonic() < deadline, f"{path} has no {count} lines"
        time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    """Say whether a process runs; one that its parent has not asked about yet has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
