"""Locks, appends under them, file systems, and replacing a file at once."""

import errno
import os
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.files.append import FileUnlinked, append_line, read_locked
from nemo_gym.files.disk import REAL_DISK, Disk, LocalDisk, disk_of
from nemo_gym.files.locks import says_no_locks
from nemo_gym.files.replace import replace_file
from nemo_gym.files.systems import file_system_of, is_local
from support.disks import LocklessDisk

DISKS: list[Disk] = [REAL_DISK, LocalDisk()]
BOTH = pytest.mark.parametrize("disk", DISKS, ids=["any", "local"])


@BOTH
def test_descriptors_of_one_process_exclude_each_other(disk: Disk, tmp_path: Path) -> None:
    first, second = (disk.open_append(tmp_path / "f") for _ in range(2))
    with disk.locks.exclusive(first):
        inside = disk.locks.try_exclusive(second)
    outside = disk.locks.try_exclusive(second)

    assert (inside, outside) == (False, True)
    os.close(first)
    os.close(second)


@BOTH
def test_closing_another_descriptor_of_the_file_drops_nothing(disk: Disk, tmp_path: Path) -> None:
    """As a POSIX record lock would."""
    first, second, third = (disk.open_append(tmp_path / "f") for _ in range(3))
    disk.locks.lock_exclusive(first)
    os.close(second)

    assert not disk.locks.try_exclusive(third)
    os.close(first)
    assert disk.locks.try_exclusive(third)
    os.close(third)


@BOTH
def test_a_held_byte_is_seen_by_others_and_not_its_neighbours(disk: Disk, tmp_path: Path) -> None:
    holder, sharer, other = (disk.open_append(tmp_path / "f") for _ in range(3))
    disk.locks.hold_range(holder, 1 << 60)
    disk.locks.hold_range(sharer, 1 << 60)
    seen = [disk.locks.is_held(other, (1 << 60) + n, 1) for n in (-1, 0, 1)]
    disk.locks.drop_range(holder, 1 << 60)
    still = disk.locks.is_held(other, 1 << 60, 1)
    os.close(sharer)

    assert seen == [False, True, False]
    assert still
    assert not disk.locks.is_held(other, 1 << 60, 1)
    os.close(holder)
    os.close(other)


@BOTH
@pytest.mark.parametrize("reading", [False, True])
def test_whoever_appends_or_reads_waits_for_the_one_who_holds_the_file(
    disk: Disk, tmp_path: Path, reading: bool
) -> None:
    holder, waiter = (disk.open_append(tmp_path / "f") for _ in range(2))
    done = threading.Event()

    def wait() -> None:
        if reading:
            read_locked(disk, waiter)
        else:
            append_line(disk, waiter, b"line")
        done.set()

    thread = threading.Thread(target=wait)
    with disk.locks.exclusive(holder):
        thread.start()
        early = done.wait(0.05)
    thread.join(10)

    assert not early
    assert done.is_set()
    os.close(holder)
    os.close(waiter)


@BOTH
@given(
    holds=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 5)), max_size=12)
)
def test_every_byte_that_others_hold_is_found_once(
    disk: Disk, holds: list[tuple[int, int, int]]
) -> None:
    with tempfile.NamedTemporaryFile() as file:
        fds = [disk.open_append(Path(file.name)) for _ in range(4)]
        for holder, start, length in holds:
            disk.locks.hold_range(fds[holder], start, length)
        found = [byte for held in disk.locks.held_ranges(fds[3], 3, 30) for byte in held]
        for fd in fds:
            os.close(fd)

    held = {byte for _, start, length in holds for byte in range(start, start + length)}
    assert sorted(found) == sorted(held & set(range(3, 33)))


@BOTH
def test_a_file_that_was_removed_is_not_written_to(disk: Disk, tmp_path: Path) -> None:
    fd = disk.open_append(tmp_path / "f")
    (tmp_path / "f").unlink()

    with pytest.raises(FileUnlinked):
        append_line(disk, fd, b"line")
    os.close(fd)


def test_what_says_that_there_are_no_locks_is_told_from_other_errors() -> None:
    assert says_no_locks(OSError(errno.ENOLCK, "x"))
    assert says_no_locks(OSError(errno.ENOSYS, "x"))
    assert not says_no_locks(OSError(errno.EIO, "x"))


@BOTH
def test_a_real_error_of_a_lock_is_not_taken_for_a_held_one(disk: Disk) -> None:
    for call in (
        disk.locks.try_exclusive,
        disk.locks.lock_exclusive,
        disk.locks.unlock,
        lambda fd: disk.locks.hold_range(fd, 1),
        lambda fd: disk.locks.drop_range(fd, 1),
        disk.state,
        disk.tail,
    ):
        with pytest.raises(OSError, match="Bad file descriptor"):
            call(9999)


@BOTH
def test_size_and_links_are_those_of_the_file_now(disk: Disk, tmp_path: Path) -> None:
    fd = disk.open_append(tmp_path / "f")
    seen = [disk.state(fd)]
    disk.write(fd, b"x" * 70_000)
    (tmp_path / "g").hardlink_to(tmp_path / "f")
    seen.append(disk.state(fd))
    (tmp_path / "f").unlink()
    (tmp_path / "g").unlink()
    os.truncate(fd, (1 << 32) + 5)
    seen.append(disk.state(fd))
    os.close(fd)

    assert seen == [(0, 1), (70_000, 2), ((1 << 32) + 5, 0)]


@BOTH
def test_the_tail_is_that_of_the_file_now(disk: Disk, tmp_path: Path) -> None:
    fd = disk.open_append(tmp_path / "f")
    seen = [disk.tail(fd)]
    for data in (b"a", b"\0", b"b\n"):
        disk.write(fd, data)
        seen.append(disk.tail(fd))
    os.truncate(fd, 1 << 32)
    disk.write(fd, b"c")
    (tmp_path / "f").unlink()
    seen.append(disk.tail(fd))
    os.close(fd)

    whole = [(0, 1, b""), (1, 1, b"a"), (2, 1, b"\0"), (4, 1, b"\n")]
    assert seen == [*whole, ((1 << 32) + 1, 0, b"c")]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these locks")
def test_a_local_disk_lets_nobody_else_run_while_it_locks(tmp_path: Path) -> None:
    """Or a thread that locks for each row queues for the interpreter twice a row."""
    disk = LocalDisk()
    fd = disk.open_append(tmp_path / "f")
    turns, going = [0], threading.Event()

    def run() -> None:
        while not going.wait(0.0001):
            turns[0] += 1

    disk.write(fd, b"x")
    disk.locks.lock_exclusive(fd)  # the first call loads the library
    disk.state(fd)
    disk.tail(fd)
    interval = sys.getswitchinterval()
    thread = threading.Thread(target=run)
    try:
        thread.start()
        sys.setswitchinterval(600)
        before = turns[0]
        for _ in range(1000):
            disk.locks.lock_exclusive(fd)
            disk.state(fd)
            disk.tail(fd)
            disk.locks.hold_range(fd, 5)
            disk.locks.drop_range(fd, 5)
            disk.locks.unlock(fd)
        after = turns[0]
    finally:
        sys.setswitchinterval(interval)
        going.set()
        thread.join()
        os.close(fd)

    # One that was about to run anyway may have.
    assert after - before <= 2


def test_a_disk_is_local_where_its_file_system_is() -> None:
    in_memory = Path("/dev/shm/any")  # noqa: S108 - nothing is written
    assert isinstance(disk_of(in_memory), LocalDisk)
    assert disk_of(Path("/proc/self")) is REAL_DISK


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
