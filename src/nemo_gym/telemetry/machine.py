"""How busy the machine is, with what, and how long this process had no core: the kernel's numbers.

None where the kernel does not tell.
"""

import os
from pathlib import Path
from typing import NamedTuple

__all__ = ["CoreWaits", "busy_s", "core_waits", "used_by_tree_s", "waited_for_core_s"]


class CoreWaits(NamedTuple):
    """How long a thread has been ready to run and had no core, and how often it got one."""

    waited_s: float
    turns: int


_IDLE_AND_IOWAIT = slice(3, 5)
_WITHOUT_GUESTS = slice(0, 8)
_OWN_AND_ENDED_CHILDREN = slice(11, 15)


def busy_s() -> float | None:
    """Return how long the machine has been busy since it began; a half-busy second is half."""
    try:
        ticks = [int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        idle = sum(ticks[_IDLE_AND_IOWAIT])
        used = sum(ticks[_WITHOUT_GUESTS]) - idle
        return used / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
    except (OSError, ValueError, IndexError):
        return None


def waited_for_core_s() -> float | None:
    """Return how long the main thread has been ready to run and had no core."""
    waits = core_waits()
    return None if waits is None else waits.waited_s


def core_waits() -> CoreWaits | None:
    """Return the waits of the main thread for a core so far."""
    try:
        _, waited_ns, turns = Path("/proc/self/schedstat").read_text().split()
        return CoreWaits(int(waited_ns) / 1e9, int(turns))
    except (OSError, ValueError):
        return None


def used_by_tree_s() -> float | None:
    """Return the core time that this process and all it started have used, in seconds.

    As in `busy_s`, one of two cores for a second is half. None where processes do not tell their
    children.
    """
    try:
        ticks = _ticks_of_tree(os.getpid())
    except (OSError, ValueError, IndexError):
        return None
    return ticks / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)


def _ticks_of_tree(pid: int) -> int:
    folder = Path(f"/proc/{pid}")
    # The name of a program may hold anything, spaces and brackets too.
    fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
    ticks = sum(int(text) for text in fields[_OWN_AND_ENDED_CHILDREN])
    children = [
        int(child)
        for thread in (folder / "task").iterdir()
        for child in (thread / "children").read_text().split()
    ]
    return ticks + sum(_ticks_or_none(child) for child in children)


def _ticks_or_none(pid: int) -> int:
    try:
        return _ticks_of_tree(pid)
    except (OSError, ValueError, IndexError):
        return 0  # it has ended meanwhile
