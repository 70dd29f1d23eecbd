"""The memory of a serving process: the collector's sight, and large pages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.runtime.memory import fully_resident, large_pages, take_large_pages

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")

SMAPS = b"""\
55d0c0000000-55d0c0400000 rw-p 00000000 00:00 0                          [heap]
Size:               4096 kB
Rss:                4000 kB
7f0000000000-7f0000800000 rw-p 00000000 00:00 0\x20
Size:               8192 kB
Rss:                 100 kB
7f0001000000-7f0001400000 rw-p 00000000 00:00 0
Rss:                3900 kB
7f0002000000-7f0002400000 r-xp 00000000 fe:00 260386                     /srv/caf\xe9/libc.so.6
Rss:                4096 kB
7f0003000000-7f0003400000 rw-p 00001000 fe:00 260386                     /usr/lib/libc.so.6
Rss:                4096 kB
7f0004000000-7f0004400000 rw-s 00000000 00:01 7                          /dev/zero (deleted)
Rss:                4096 kB
7ffc00000000-7ffc00400000 rw-p 00000000 00:00 0                          [stack]
Rss:                4096 kB
"""


def _printed(script: str) -> list[int]:
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return [int(word) for word in ran.stdout.split()]


def test_what_is_loaded_is_out_of_the_collectors_sight() -> None:
    before, frozen, seen = _printed(
        "import gc; from nemo_gym.runtime.memory import settle_memory\n"
        "before = len(gc.get_objects()); settle_memory()\n"
        "print(before, gc.get_freeze_count(), len(gc.get_objects()))"
    )

    assert frozen >= before * 0.9
    assert seen < before * 0.1


def _has_large_pages() -> bool:
    if sys.platform != "linux" or not SETTING.exists() or "[never]" in SETTING.read_text():
        return False
    release = os.uname().release.split(".")
    return (int(release[0]), int(release[1].split("-")[0])) >= (6, 1)


@pytest.mark.skipif(not _has_large_pages(), reason="the system has no large pages on demand")
def test_the_heap_lies_on_large_pages_and_holds_what_it_held() -> None:
    # What the system has to give at a moment is its affair: one process in three must get some.
    found = [
        _printed(
            "from nemo_gym.runtime.memory import settle_memory\n"
            "from pathlib import Path\n"
            "held = [str(n) * 8 for n in range(200_000)]\n"
            "settle_memory()\n"
            "rollup = Path('/proc/self/smaps_rollup').read_text()\n"
            "large = rollup.split('AnonHugePages:')[1].split()[0]\n"
            "print(large, int(held == [str(n) * 8 for n in range(200_000)]))"
        )
        for _ in range(3)
    ]

    assert max(large_kb for large_kb, _ in found) >= 4 * 1024
    assert all(is_same for _, is_same in found)


def test_memory_that_is_private_nameless_and_in_use_is_taken_the_heap_last() -> None:
    found = list(fully_resident(SMAPS))

    assert found == [(0x7F0001000000, 0x7F0001400000), (0x55D0C0000000, 0x55D0C0400000)]


LARGE = 2 << 20
places = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, LARGE - 1), st.integers(1, 5 * LARGE)), max_size=6
)


@given(places)
def test_a_large_page_lies_wholly_in_one_place_and_what_was_loaded_first_comes_first(
    drawn: list[tuple[int, int, int]],
) -> None:
    at, laid = 0, list[tuple[int, int]]()
    for gap, offset, length in drawn:
        first = at + gap * LARGE + offset
        at = first + length
        laid.append((first, at))

    pages = list(large_pages(laid))

    def is_inside(page: int) -> bool:
        return any(first <= page and page + LARGE <= end for first, end in laid)

    assert pages == [page for page in range(at // LARGE * LARGE, -1, -LARGE) if is_inside(page)]


def test_a_large_heap_is_taken_in_part(tmp_path: Path) -> None:
    enabled, maps = tmp_path / "enabled", tmp_path / "smaps"
    enabled.write_text("[always] madvise never\n")
    maps.write_text("1000000-41000000 rw-p 00000000 00:00 0\nRss:  1048576 kB\n")

    assert take_large_pages(enabled, maps) == (24 if sys.platform == "linux" else 0)


@pytest.mark.parametrize(
    ("setting", "asked"),
    [
        ("[always] madvise never\n", 2),
        ("always [madvise] never\n", 2),
        ("always madvise [never]\n", 0),
        (None, 0),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has them")
def test_large_pages_are_asked_for_where_they_are_not_forbidden(
    tmp_path: Path, setting: str | None, asked: int
) -> None:
    enabled, maps = tmp_path / "enabled", tmp_path / "smaps"
    # No process has memory there, so the system refuses, and all is as it was.
    maps.write_text("200000-600000 rw-p 00000000 00:00 0\nRss:  4096 kB\n")
    if setting is not None:
        enabled.write_text(setting)

    assert take_large_pages(enabled, maps) == asked


def test_a_system_that_shows_no_maps_is_as_it_was(tmp_path: Path) -> None:
    enabled = tmp_path / "enabled"
    enabled.write_text("[always] madvise never\n")

    assert take_large_pages(enabled, tmp_path / "none") == 0
