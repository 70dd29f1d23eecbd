"""The files that rows go to: one line a row, whatever the row holds; few of them open at once."""

import errno
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from nemo_gym.capture.layout import Layout
from nemo_gym.capture.rollout_files import RolloutFiles, kept_open, sync_each_file
from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import RolloutId
from support.disks import FaultyDisk
from support.watched_disk import WatchedDisk

A = RolloutId("0-0")


def test_a_row_with_a_line_break_stays_one_line(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    store.submit(Row(A, "c", b'{\n"model_call_id":\n"c"}')).result()

    assert store.read(A) == [{"model_call_id": "c"}]
    store.close()


def test_rows_go_where_readers_look_when_files_were_moved_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, other = CaptureStore(tmp_path), CaptureStore(tmp_path)
    ids = [A, RolloutId("0-1"), RolloutId("0-2")]
    for rollout in ids:
        store.submit(Row(rollout, "before", b'{"model_call_id":"before"}')).result()
    moved = [tmp_path / f"{rollout}.capture.jsonl" for rollout in ids[:2]]
    for path in moved:
        path.rename(path.with_suffix(".bak"))
    (tmp_path / "0-2.capture.jsonl").unlink()
    for rollout in ids:
        store.submit(Row(rollout, "after", b'{"model_call_id":"after"}')).result()

    assert [other.read(rollout) for rollout in ids] == [[{"model_call_id": "after"}]] * 3
    assert moved[0].with_suffix(".bak").read_bytes() == b'{"model_call_id":"before"}\n'
    assert [record.message.split(" ")[3] for record in caplog.records] == ["moved"] * 2 + [
        "removed"
    ]
    store.close()


class CountingDisk(WatchedDisk):
    """Knows how many files were open at once."""

    most = 0

    def open_append(self, path: Path) -> int:
        fd = super().open_append(path)
        self.most = max(self.most, len(self.opened))
        return fd


def test_no_more_files_are_kept_open_than_a_process_can_spare(tmp_path: Path) -> None:
    disk = CountingDisk()
    files = RolloutFiles(Layout(tmp_path), disk)
    most = kept_open(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    rollouts = [RolloutId(f"{number}-0") for number in range(most + 2)]
    for rollout_id in (*rollouts, *rollouts[:3]):
        files.append(rollout_id, b"{}")

    assert disk.most == most
    assert [(tmp_path / f"{n}-0.capture.jsonl").read_bytes().count(b"\n") for n in range(4)] == [
        2,
        2,
        2,
        1,
    ]
    files.close()
    assert disk.opened == {}


@pytest.mark.parametrize("limit", [3, 24, 110, 256, 1024, 1 << 20, resource.RLIM_INFINITY])
def test_most_of_what_may_be_opened_is_left_to_others(limit: int) -> None:
    most = kept_open(limit)

    assert 1 <= most <= 4096
    assert limit == resource.RLIM_INFINITY or most <= max(1, limit // 4)


class FullTableDisk(WatchedDisk):
    """Lets nobody open more than a few files, for one of both reasons."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def open_append(self, path: Path) -> int:
        if len(self.opened) == 3:
            raise OSError(self.number, "Too many open files")
        return super().open_append(path)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_files_that_are_open_for_speed_only_give_way(tmp_path: Path, number: int) -> None:
    disk = FullTableDisk(number)
    files = RolloutFiles(Layout(tmp_path), disk)
    for task in range(8):
        files.append(RolloutId(f"{task}-0"), b"{}")
    disk.opened |= {-1: tmp_path, -2: tmp_path, -3: tmp_path}  # those of others
    files.close()

    assert len(list(tmp_path.iterdir())) == 8
    with pytest.raises(OSError, match="Too many open files"):
        files.append(A, b"{}")


@pytest.mark.parametrize("count", [1, 2, 40])
def test_one_file_that_cannot_be_synced_fails_all_that_wait(tmp_path: Path, count: int) -> None:
    disk = FaultyDisk()
    paths = [tmp_path / f"{number}-0.capture.jsonl" for number in range(count)]
    for path in paths:
        path.touch()
    disk.sync_error = OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        sync_each_file(disk, tmp_path, paths)


def test_a_process_that_ends_syncs_every_file_before_it_is_gone(tmp_path: Path) -> None:
    """On a disk behind a network, where many are synced at a time: there are no threads then."""
    program = """
        import atexit, os, sys
        synced = set()
        atexit.register(lambda: print(len(synced)))  # after the store, which comes later
        from nemo_gym.capture.row import Row
        from nemo_gym.capture.store import CaptureStore
        from nemo_gym.ids import RolloutId
        from support.disks import FaultyDisk
        class Syncing(FaultyDisk):
            def sync(self, fd):
                super().sync(fd)
                synced.add(os.readlink(f"/proc/self/fd/{fd}"))
        disk = Syncing()
        disk.local = False
        store = CaptureStore(sys.argv[1], disk=disk)
        store.open_for_writing()
        atexit.register(lambda: [
            store.submit(Row(RolloutId(f"{n}-0"), "c", b"{}")) for n in range(20)
        ])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        timeout=60,
    )

    assert done.stdout == "20\n"
    assert "lost" not in done.stderr
