"""Clearing when something comes in between: it is done for good, or it is told that it was not."""

import errno
from pathlib import Path

import pytest

from nemo_gym.capture.layout import Layout
from nemo_gym.capture.log import new_segment, write_records
from nemo_gym.capture.recovery import recover
from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.disk import REAL_DISK, Disk
from nemo_gym.files.locks import FileLocks
from nemo_gym.ids import RolloutId
from support.disks import ForgetfulDisk

A, B, C = RolloutId("0-0"), RolloutId("0-1"), RolloutId("0-2")
SEGMENT_BYTES = 1 << 16


def row(call_id: str, rollout_id: RolloutId = A) -> Row:
    return Row(rollout_id, call_id, f'{{"model_call_id":"{call_id}"}}'.encode())


def ids(store: CaptureStore, rollout_id: RolloutId = A) -> list[str]:
    items = store.read(rollout_id)
    return [item["model_call_id"] for item in items if isinstance(item, dict)]


class BrokenLocks(FileLocks):
    """There are locks, and asking for one fails."""

    def lock_exclusive(self, fd: int) -> None:
        raise OSError(errno.EDEADLK, "Resource deadlock avoided")

    def lock_shared(self, fd: int) -> None:
        raise OSError(errno.EDEADLK, "Resource deadlock avoided")


class BrokenLockDisk(Disk):
    locks = BrokenLocks()


def test_only_where_there_are_no_locks_at_all_is_anything_done_without_one(tmp_path: Path) -> None:
    (tmp_path / f"{A}.capture.jsonl").write_bytes(row("c").line)
    store = CaptureStore(tmp_path, disk=BrokenLockDisk())

    with pytest.raises(OSError, match="deadlock"):
        store.clear([A])
    with pytest.raises(OSError, match="deadlock"):
        store.read(A)
    assert ids(CaptureStore(tmp_path)) == ["c"]


class RacedDisk(Disk):
    """Somebody removes a file just before it is opened."""

    def open_existing(self, path: Path) -> int:
        path.unlink()
        return super().open_existing(path)


def test_a_file_that_somebody_removes_meanwhile_is_cleared(tmp_path: Path) -> None:
    (tmp_path / f"{A}.capture.jsonl").write_bytes(row("c").line)
    CaptureStore(tmp_path, disk=RacedDisk()).clear([A])

    assert ids(CaptureStore(tmp_path)) == []


class NoTombstonesDisk(ForgetfulDisk):
    """Has no room for tombstones, for a while."""

    full = False

    def open_append(self, path: Path) -> int:
        if self.full and path.name == "tombstones.jsonl":
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().open_append(path)


def test_a_clearing_that_failed_is_whole_when_it_is_done_again(tmp_path: Path) -> None:
    now, later = tmp_path / "now", tmp_path / "later"
    now.mkdir()
    disk = NoTombstonesDisk(now)
    store = CaptureStore(now, disk=disk, segment_bytes=SEGMENT_BYTES)
    store.submit(row("cleared")).result()
    disk.full = True
    with pytest.raises(OSError, match="No space"):
        store.clear([A])
    disk.full = False
    store.clear([A])
    disk.cut().restore(now, later, None)

    assert ids(CaptureStore(later)) == []
    store.close()


def leave_log(layout: Layout, *rows: Row) -> None:
    """Leave the log of a writer that went with the power."""
    for folder in layout.folders:
        folder.mkdir(exist_ok=True)
    layout.owner("gone").write_text("the boot before the cut")
    segment = new_segment(REAL_DISK, layout.segment("gone", 1), 1, 4096, fill=False)
    write_records(REAL_DISK, segment, rows)
    REAL_DISK.close(segment.fd)


def test_a_damaged_tombstone_costs_itself_only(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    leave_log(layout, row("first"), row("torn"), row("last"))
    first, last = (f'{{"model_call_ids":["{name}"]}}\n' for name in ("first", "last"))
    layout.tombstones.write_text(first + '{"model_call_ids":["to\n' + "[1]\n{}\n" + last)

    assert ids(CaptureStore(tmp_path)) == ["torn"]


def test_tombstones_are_kept_while_any_log_could_need_them_and_no_longer(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    living = CaptureStore(tmp_path, segment_bytes=SEGMENT_BYTES)
    living.submit(row("of the living", B)).result()
    leave_log(layout, row("c"))
    CaptureStore(tmp_path).clear([A, B])
    sizes = [layout.tombstones.stat().st_size]
    living.close()
    leave_log(layout)
    recover(layout, REAL_DISK)
    sizes.append(layout.tombstones.stat().st_size)

    assert sizes[0] > 0
    assert sizes[1] == 0


def test_what_only_a_log_holds_after_a_power_cut_is_cleared_too(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    leave_log(layout, row("c"), row("d", B))
    known = [CaptureStore(tmp_path).has_rollout(A)]
    leave_log(layout, row("e"), row("d", B), row("f", C))
    known.append(CaptureStore(tmp_path).rollouts() == [A, B, C])
    leave_log(layout, row("g"))
    CaptureStore(tmp_path).clear([A])

    assert known == [True, True]
    assert (ids(CaptureStore(tmp_path)), ids(CaptureStore(tmp_path), B)) == ([], ["d"])
