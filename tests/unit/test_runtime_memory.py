"""The memory of a serving process: the collector's sight, and large pages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym.runtime.memory import mostly_resident, take_large_pages

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")

SMAPS = """\
55d0c0000000-55d0c0400000 rw-p 00000000 00:00 0                          [heap]
Size:               4096 kB
Rss:                4000 kB
7f0000000000-7f0000800000 rw-p 00000000 00:00 0{space}
Size:               8192 kB
Rss:                 100 kB
7f0001000000-7f0001400000 rw-p 00000000 00:00 0
Rss:                2048 kB
7f0002000000-7f0002400000 r-xp 00000000 fe:00 260386                     /usr/lib/libc.so.6
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
    large_kb, is_same = _printed(
        "from nemo_gym.runtime.memory import settle_memory\n"
        "from pathlib import Path\n"
        "held = [str(n) * 8 for n in range(200_000)]\n"
        "settle_memory()\n"
        "rollup = Path('/proc/self/smaps_rollup').read_text()\n"
        "large = rollup.split('AnonHugePages:')[1].split()[0]\n"
        "print(large, int(held == [str(n) * 8 for n in range(200_000)]))"
    )

    assert large_kb >= 4 * 1024
    assert is_same


def test_memory_that_is_private_nameless_and_in_use_is_taken() -> None:
    found = list(mostly_resident(SMAPS.format(space=" ")))

    heap, half_in_use = (0x55D0C0000000, 0x55D0C0400000), (0x7F0001000000, 0x7F0001400000)
    assert found == [heap, half_in_use]


@pytest.mark.parametrize(
    ("setting", "asked"),
    [
        ("[always] madvise never\n", 1),
        ("always [madvise] never\n", 1),
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
    maps.write_text("10000-410000 rw-p 00000000 00:00 0\nRss:  4096 kB\n")
    if setting is not None:
        enabled.write_text(setting)

    assert take_large_pages(enabled, maps) == asked


def test_a_system_that_shows_no_maps_is_as_it_was(tmp_path: Path) -> None:
    enabled = tmp_path / "enabled"
    enabled.write_text("[always] madvise never\n")

    assert take_large_pages(enabled, tmp_path / "none") == 0
