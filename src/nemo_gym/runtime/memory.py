"""How the memory of a serving process is looked after, set once everything is loaded.

Modules, classes and routes live as long as the process. Looking through them again and again costs
up to a third of a model call with a thousand in flight; what a call leaves behind is freed by
reference counts, and the collector is for the few rings among it. And where they lie on thousands
of small pages, a server that is not busy all the time finds few of them in the processor's page
cache (TLB) when the next call comes.
"""

import ctypes
import gc
import re
import sys
from collections.abc import Iterator
from itertools import starmap
from pathlib import Path

__all__ = ["mostly_resident", "settle_memory", "take_large_pages"]

_YOUNG_THRESHOLD = 20_000
_LARGE_PAGE = 2 * 1024 * 1024
_MADV_COLLAPSE = 25
"""Since Linux 6.1, madvise(2)."""
_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_MAPS = Path("/proc/self/smaps")
_HEAD_OF_A_MAP = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw.p \S+ \S+ 0\s*(?:\[heap\])?")


def settle_memory() -> None:
    """Take all that is alive now out of the collector's sight, and put it on large pages.

    The collector runs less often from now on. Large pages are the system's to give: without them
    everything is as it was.
    """
    gc.collect()
    gc.freeze()
    _, second, third = gc.get_threshold()
    gc.set_threshold(_YOUNG_THRESHOLD, second, third)
    take_large_pages()


def take_large_pages(setting: Path = _SETTING, maps: Path = _MAPS) -> int:
    """Put the heap of this process on large pages, where the system has them and allows them.

    Returns for how many stretches of memory the system was asked.

    Costs some 25 ms once; what is allocated later lies where the system puts it.
    """
    try:
        # Whoever forbids them has a reason; the call itself would not ask.
        if sys.platform != "linux" or "[never]" in setting.read_text():
            return 0
        places = list(mostly_resident(maps.read_text()))
    except OSError:
        return 0
    collapse = ctypes.CDLL(None).madvise
    collapse.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    stretches = [(start, length) for start, length in starmap(_whole_pages, places) if length]
    for start, length in stretches:
        collapse(start, length, _MADV_COLLAPSE)
    return len(stretches)


def _whole_pages(first: int, end: int) -> tuple[int, int]:
    """Return start and length of the large pages that lie wholly within."""
    start = -(-first // _LARGE_PAGE) * _LARGE_PAGE
    return start, max(0, end // _LARGE_PAGE * _LARGE_PAGE - start)


def mostly_resident(maps: str) -> Iterator[tuple[int, int]]:
    """Return where private memory lies that is mostly resident, from `/proc/self/smaps`.

    The stack of a thread is 8 MB of which a few pages are used: a large page would be a waste.
    """
    place: tuple[int, int] | None = None
    for line in maps.splitlines():
        if line.startswith("Rss:"):
            resident = int(line.split()[1]) * 1024
            if place is not None and resident * 2 >= place[1] - place[0]:
                yield place
            place = None
        elif found := _HEAD_OF_A_MAP.fullmatch(line):
            place = int(found[1], 16), int(found[2], 16)
