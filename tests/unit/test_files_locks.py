"""Locks, appends under them, file systems, and replacing a file at once."""

import errno
import os
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.files.append import FileUnlinked, append_line, read_locked
from nemo_gym.files.disk import REAL_DISK, Disk
from nemo_gym.files.locks import FileLocks, says_no_locks
from nemo_gym.files.replace import replace_file
from nemo_gym.files.systems import file_system_of, is_local
from support.disks import LocklessDisk

LOCKS = FileLocks()


def test_descriptors_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    first, second = (REAL_DISK.open_append(tmp_path / "f") for _ in range(2))
    with LOCKS.exclusive(first):
        inside = LOCKS.try_exclusive(second)
    outside = LOCKS.try_exclusive(second)

    assert (inside, outside) == (False, True)
    os.close(first)
    os.close(second)


def test_closing_another_descriptor_of_the_file_drops_nothing(tmp_path: Path) -> None:
    """As a POSIX record lock would."""
    first, second, third = (REAL_DISK.open_append(tmp_path / "f") for _ in range(3))
    LOCKS.lock_exclusive(first)
    os.close(second)

    assert not LOCKS.try_exclusive(third)
    os.close(first)
    assert LOCKS.try_exclusive(third)
    os.close(third)


def test_a_held_byte_is_seen_by_others_and_not_its_neighbours(tmp_path: Path) -> None:
    holder, sharer, other = (REAL_DISK.open_append(tmp_path / "f") for _ in range(3))
    LOCKS.hold_range(holder, 1 << 60)
    LOCKS.hold_range(sharer, 1 << 60)
    seen = [LOCKS.is_held(other, (1 << 60) + n, 1) for n in (-1, 0, 1)]
    LOCKS.drop_range(holder, 1 << 60)
    still = LOCKS.is_held(other, 1 << 60, 1)
    os.close(sharer)

    assert seen == [False, True, False]
    assert still
    assert not LOCKS.is_held(other, 1 << 60, 1)
    os.close(holder)
    os.close(other)


@pytest.mark.parametrize("reading", [False, True])
def test_whoever_appends_or_reads_waits_for_the_one_who_holds_the_file(
    tmp_path: Path, reading: bool
) -> None:
    holder, waiter = (REAL_DISK.open_append(tmp_path / "f") for _ in range(2))
    done = threading.Event()

    def wait() -> None:
        if reading:
            read_locked(REAL_DISK, waiter)
        else:
            append_line(REAL_DISK, waiter, b"line")
        done.set()

    thread = threading.Thread(target=wait)
    with LOCKS.exclusive(holder):
        thread.start()
        early = done.wait(0.05)
    thread.join(10)

    assert not early
    assert done.is_set()
    os.close(holder)
    os.close(waiter)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 5)), max_size=12))
def test_every_byte_that_others_hold_is_found_once(holds: list[tuple[int, int, int]]) -> None:
    with tempfile.NamedTemporaryFile() as file:
        fds = [REAL_DISK.open_append(Path(file.name)) for _ in range(4)]
        for holder, start, length in holds:
            LOCKS.hold_range(fds[holder], start, length)
        found = [byte for held in LOCKS.held_ranges(fds[3], 3, 30) for byte in held]
        for fd in fds:
            os.close(fd)

    held = {byte for _, start, length in holds for byte in range(start, start + length)}
    assert sorted(found) == sorted(held & set(range(3, 33)))


def test_a_file_that_was_removed_is_not_written_to(tmp_path: Path) -> None:
    fd = REAL_DISK.open_append(tmp_path / "f")
    (tmp_path / "f").unlink()

    with pytest.raises(FileUnlinked):
        append_line(REAL_DISK, fd, b"line")
    os.close(fd)


def test_what_says_that_there_are_no_locks_is_told_from_other_errors() -> None:
    assert says_no_locks(OSError(errno.ENOLCK, "x"))
    assert says_no_locks(OSError(errno.ENOSYS, "x"))
    assert not says_no_locks(OSError(errno.EIO, "x"))


def test_a_real_error_of_a_lock_is_not_taken_for_a_held_one(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        LOCKS.try_exclusive(9999)


MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /data rw - nfs4 server:/x rw
31 22 0:27 / /data/fast\\040disk rw shared:1 - xfs /dev/b rw
32 22 0:28 / /layered rw - tmpfs tmpfs rw
33 22 0:29 / /layered rw - overlay overlay rw
nonsense
"""


@pytest.mark.parametrize(
    ("path", "system"),
    [
        ("/home/x", "ext4"),
        ("/data/x", "nfs4"),
        ("/database", "ext4"),
        ("/data/fast disk/captures", "xfs"),
        ("/layered/x", "overlay"),
    ],
)
def test_the_longest_and_latest_mount_says_what_a_path_lies_on(
    tmp_path: Path, path: str, system: str
) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)

    assert file_system_of(Path(path), tmp_path / "mountinfo") == system


def test_a_system_without_a_table_of_mounts_has_no_known_local_file_system(tmp_path: Path) -> None:
    assert file_system_of(tmp_path, tmp_path / "missing") is None
    assert file_system_of(Path("/proc/self")) == "proc"
    assert not is_local(Path("/proc/self"))


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    replace_file(path, b"old")
    replace_file(path, b"x" * 100_000)

    assert path.read_bytes() == b"x" * 100_000
    assert list(tmp_path.iterdir()) == [path]


def test_a_replacement_that_fails_leaves_the_old_content(tmp_path: Path) -> None:
    class Full(Disk):
        def write_at(self, fd: int, data: bytes, offset: int) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "f.json"
    replace_file(path, b"old")
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new", disk=Full())

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_lockless_disk_of_the_tests_has_no_locks(tmp_path: Path) -> None:
    fd = LocklessDisk().open_append(tmp_path / "f")
    with pytest.raises(OSError, match="no locks"):
        append_line(LocklessDisk(), fd, b"line")
    os.close(fd)
