"""How busy the machine is, and how long this process had no core: numbers of the kernel (Linux).

None where the kernel does not tell.
"""

import os
from pathlib import Path

__all__ = ["busy_s", "waited_for_core_s"]

_IDLE_AND_IOWAIT = slice(3, 5)
_WITHOUT_GUESTS = slice(0, 8)


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
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
