"""What a row's sync has to wait behind: never much, however much else there is to write."""

import errno
import os
import threading
from pathlib import Path

import pytest

from nemo_gym.capture.commit_log import CommitLog
from nemo_gym.capture.layout import Layout
from nemo_gym.capture.log import new_segment
from nemo_gym.capture.rollout_files import sync_files
from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.disk import REAL_DISK, Disk
from nemo_gym.files.libc import write_back
from nemo_gym.ids import RolloutId

A_PIECE = 256 * 1024
"""Of a disk that writes 500 MB/s half a millisecond."""


class DirtyDisk(Disk):
    """Knows how much of each file the disk does not have yet."""

    def __init__(self) -> None:
        self.dirty: dict[str, int] = {}
        self.at_once: list[int] = []
        """How much each call that writes to the disk found."""
        self.broken = False

    def write(self, fd: int, *parts: bytes) -> int:
        return self._wrote(fd, super().write(fd, *parts))

    def write_at(self, fd: int, data: bytes, offset: int) -> int:
        return self._wrote(fd, super().write_at(fd, data, offset))

    def write_back(self, fd: int) -> None:
        if self.broken:
            raise OSError(errno.EIO, "the disk is broken")
        super().write_back(fd)
        self.at_once.append(self.dirty.pop(_name(fd), 0))

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self.at_once.append(self.dirty.pop(_name(fd), 0))

    def sync_file_system(self, path: Path) -> None:
        if self.broken:
            raise OSError(errno.EIO, "the disk cannot sync it all")
        self.at_once.append(sum(self.dirty.values()))
        self.dirty.clear()

    def _wrote(self, fd: int, size: int) -> int:
        self.dirty[_name(fd)] = self.dirty.get(_name(fd), 0) + size
        return size


def _name(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="needs /proc to name a descriptor's file"
)


def test_a_new_segment_goes_to_the_disk_in_pieces(tmp_path: Path) -> None:
    disk = DirtyDisk()
    capacity = 5 * A_PIECE + 77

    segment = new_segment(disk, tmp_path / "1.log", 1, capacity)

    assert os.fstat(segment.fd).st_size == capacity
    assert sum(disk.at_once) == capacity
    assert max(disk.at_once) <= A_PIECE
    disk.close(segment.fd)


def test_a_segment_is_filled_as_far_as_a_limit_lets_it(tmp_path: Path) -> None:
    class Limited(Disk):
        def write_at(self, fd: int, data: bytes, offset: int) -> int:
            if offset >= A_PIECE:
                raise OSError(errno.EFBIG, "File too large")
            return super().write_at(fd, data, offset)

    segment = new_segment(Limited(), tmp_path / "1.log", 1, 3 * A_PIECE)

    assert os.fstat(segment.fd).st_size == A_PIECE
    os.close(segment.fd)


def test_many_capture_files_go_to_the_disk_one_after_the_other(tmp_path: Path) -> None:
    disk = DirtyDisk()
    paths = [tmp_path / f"{n}-0.capture.jsonl" for n in range(100)]
    for path in paths:
        fd = disk.open_append(path)
        disk.write(fd, b"x" * 4000)
        disk.close(fd)
    gone = tmp_path / "gone.capture.jsonl"

    sync_files(disk, tmp_path, [*paths, gone], one_by_one=True)

    assert disk.at_once == [4000] * 100 + [0]


@pytest.mark.parametrize(("took_s", "one_by_one"), [(0.5, False), (2.0, True)])
def test_capture_files_go_one_by_one_while_segments_do_not_follow_at_once(
    tmp_path: Path, took_s: float, one_by_one: bool
) -> None:
    """Under full load that would only cost more; the rows wait for each other anyway."""
    disk, now = DirtyDisk(), [0.0]
    layout = Layout(tmp_path)
    for folder in layout.folders:
        disk.make_directory(folder)
    log = CommitLog(layout, disk, "writer", 16 * 1024, clock=lambda: now[0])
    log.open()
    rows = [Row(RolloutId(f"{n}-0"), f"c{n}", b"x" * 500) for n in range(40)]
    for row in rows:
        fd = disk.open_append(layout.capture_file(row.rollout_id))
        disk.write(fd, row.line, b"\n")
        disk.close(fd)
    log.commit(rows)  # fills the first, smaller segment
    now[0] += took_s
    log.commit([Row(RolloutId("0-0"), "last", b"x")])
    log.close()

    assert (disk.at_once.count(501) == 40) is one_by_one


def test_a_disk_that_fails_beside_the_log_costs_no_row(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = DirtyDisk()
    store = CaptureStore(tmp_path, disk=disk, segment_bytes=32 * 1024)
    store.open_for_writing()
    disk.broken = True
    rollouts = [RolloutId(f"{n}-0") for n in range(50)]
    for n, rollout_id in enumerate(rollouts * 4):
        line = b'{"model_call_id":"c%d","x":"%s"}' % (n, b"x" * 300)
        store.submit(Row(rollout_id, f"c{n}", line)).result()
    disk.broken = False
    store.close()

    assert all(len(list(store.read(rollout_id))) == 4 for rollout_id in rollouts)
    assert not any(store.is_incomplete(rollout_id) for rollout_id in rollouts)
    assert "the disk is broken" in caplog.text
    assert "the disk cannot sync it all" in caplog.text


def test_writing_back_is_left_out_where_a_file_has_no_place_on_a_disk() -> None:
    reading, writing = os.pipe()
    try:
        write_back(writing)
        with pytest.raises(OSError, match="Bad file descriptor"):
            write_back(1 << 20)
    finally:
        os.close(reading)
        os.close(writing)


def test_the_real_disk_writes_back_what_is_there(tmp_path: Path) -> None:
    fd = REAL_DISK.open_append(tmp_path / "file")
    REAL_DISK.write(fd, b"all of it")
    REAL_DISK.write_back(fd)
    assert REAL_DISK.read_at(fd, 100, 0) == b"all of it"
    REAL_DISK.close(fd)


def test_the_thread_that_stores_rows_never_shortens_a_file(tmp_path: Path) -> None:
    """Which waits for the disk; a segment's overhang is cut off beside the work."""
    shortened_by: set[str] = set()

    class Watched(Disk):
        def truncate(self, fd: int, size: int) -> None:
            shortened_by.add(threading.current_thread().name)
            super().truncate(fd, size)

    store = CaptureStore(tmp_path, disk=Watched(), segment_bytes=8192)
    for n in range(200):
        line = b'{"model_call_id":"c%d","x":"%s"}' % (n, b"x" * 1500)
        store.submit(Row(RolloutId("0-0"), f"c{n}", line)).result()
    store.close()

    assert shortened_by == {"nemo-gym-capture-sync"}
    assert len(list(store.read("0-0"))) == 200
