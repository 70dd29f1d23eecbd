"""How the memory of a serving process is looked after, set once everything is loaded.

Modules, classes and routes live as long as the process. Looking through them again and again costs
up to a third of a model call with a thousand in flight; what a call leaves behind is freed by
reference counts, and the collector is for the few rings among it. And where they lie on thousands
of small pages, a server that is not busy all the time finds few of them in the processor's page
cache (TLB) when the next call comes.
"""

import gc
import logging
import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from nemo_gym.files.libc import collapse_pages

__all__ = ["fully_resident", "large_pages", "settle_memory", "take_large_pages"]

logger = logging.getLogger(__name__)

_YOUNG_THRESHOLD = 20_000
_LARGE_PAGE = 2 * 1024 * 1024
_MOST_PAGES = 24
"""Of 1 to 3 ms each: what is loaded fills a dozen, and data of a component must not be moved."""
_RESIDENT_SHARE = 0.9
_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_MAPS = Path("/proc/self/smaps")
_HEAD_OF_A_MAP = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) rw.p \S+ \S+ 0\s*(\[heap\])?")


def settle_memory() -> None:
    """Take all that is alive now out of the collector's sight, and put it on large pages.

    The collector runs less often from now on, and never frees a ring that is alive at this moment.
    Large pages are the system's to give: without them everything is as it was.
    """
    gc.collect()
    gc.freeze()
    _, second, third = gc.get_threshold()
    gc.set_threshold(_YOUNG_THRESHOLD, second, third)
    try:
        take_large_pages()
    except Exception:  # a process that runs a little slower is no reason to end it
        logger.warning("the heap stays on small pages", exc_info=True)


def take_large_pages(setting: Path = _SETTING, maps: Path = _MAPS) -> int:
    """Put what was loaded first, at most 48 MB of it, on large pages; return for how many it asked.

    It costs 10 to 60 ms once. What is allocated later lies where the system puts it.
    """
    try:
        # Whoever forbids them has a reason; the call itself would not ask.
        if sys.platform != "linux" or b"[never]" in setting.read_bytes():
            return 0
        places = list(fully_resident(maps.read_bytes()))
    except OSError:
        return 0
    pages = list(islice(large_pages(places), _MOST_PAGES))
    for start, length in _stretches(pages):
        collapse_pages(start, length)
    return len(pages)


def large_pages(places: list[tuple[int, int]]) -> Iterator[int]:
    """Return where the large pages begin that lie wholly in `places`, from the last one's end back.

    Memory is given out downwards, so what was loaded first lies highest.
    """
    for first, end in reversed(places):
        last = end // _LARGE_PAGE * _LARGE_PAGE - _LARGE_PAGE
        yield from range(last, first - 1, -_LARGE_PAGE)


def _stretches(pages: list[int]) -> Iterator[tuple[int, int]]:
    """Return start and length of pages that lie side by side: one question costs less than many."""
    begun: list[int] = []
    for page in sorted(pages):
        if begun and page != begun[-1] + _LARGE_PAGE:
            yield begun[0], len(begun) * _LARGE_PAGE
            begun = []
        begun.append(page)
    if begun:
        yield begun[0], len(begun) * _LARGE_PAGE


def fully_resident(maps: bytes) -> Iterator[tuple[int, int]]:
    """Return where private memory lies that is all in use, from `/proc/self/smaps`, heap last.

    The stack of a thread is 8 MB of which a few pages are used: a large page would be a waste.
    """
    place: tuple[int, int] | None = None
    heap: list[tuple[int, int]] = []
    is_heap = False
    for line in maps.splitlines():
        if line.startswith(b"Rss:"):
            resident = int(line.split()[1]) * 1024
            if place is not None and resident >= _RESIDENT_SHARE * (place[1] - place[0]):
                if is_heap:
                    heap.append(place)
                else:
                    yield place
            place = None
        elif found := _HEAD_OF_A_MAP.fullmatch(line):
            place, is_heap = (int(found[1], 16), int(found[2], 16)), found[3] is not None
    yield from heap
