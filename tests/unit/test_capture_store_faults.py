"""The capture store when the disk is full, slow or broken: a lost row is marked, the rest whole."""

import errno
import resource
import time
from pathlib import Path

import pytest

from nemo_gym.capture.marks import has_mark
from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import RolloutId
from support.disks import FaultyDisk, LocklessDisk

A, B = RolloutId("0-0"), RolloutId("0-1")


def row(rollout_id: RolloutId, call_id: str, size: int = 100) -> Row:
    return Row(rollout_id, call_id, f'{{"model_call_id":"{call_id}","x":"{"x" * size}"}}'.encode())


def ids(store: CaptureStore, rollout_id: RolloutId) -> list[str]:
    return [
        dict(item)["model_call_id"] for item in store.read(rollout_id) if isinstance(item, dict)
    ]


class BuggyDisk(FaultyDisk):
    """Fails in a way that no disk does, as code with a mistake would."""

    buggy = False

    def write(self, fd: int, *parts: bytes) -> int:
        if self.buggy:
            raise ZeroDivisionError
        return super().write(fd, *parts)


def test_a_mistake_in_the_writer_fails_its_batch_and_not_the_thread(tmp_path: Path) -> None:
    disk = BuggyDisk()
    store = CaptureStore(tmp_path, disk=disk)
    store.open_for_writing()
    disk.buggy = True
    error = store.submit(row(A, "lost"), store.claim(A)).exception()
    disk.buggy = False
    store.submit(row(A, "next")).result()

    assert isinstance(error, ZeroDivisionError)
    assert ids(store, A) == ["next"]
    assert store.is_incomplete(A)
    assert not store.is_pending(A)
    store.close()


def test_many_files_of_a_network_file_system_are_each_synced(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.local = False
    store = CaptureStore(tmp_path, disk=disk)
    store.open_for_writing()
    disk.sync_delay_s = 0.05
    futures = [store.submit(row(RolloutId(f"{n}-0"), "c")) for n in range(30)]
    began = time.monotonic()
    for future in futures:
        future.result()

    assert time.monotonic() - began < 30 * 0.05
    assert len(store.rollouts()) == 30
    store.close()


@pytest.mark.parametrize("room", [0, 50])
def test_rows_before_and_after_a_full_disk_are_whole_and_the_ones_during_are_marked(
    tmp_path: Path, room: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk()
    store = CaptureStore(tmp_path, disk=disk)
    store.submit(row(A, "before")).result()
    disk.room = room
    lost = store.submit(row(A, "during"))
    with pytest.raises(OSError, match=r"No space left|only 50 of"):
        lost.result()
    marked = store.is_incomplete(A) and has_mark(store.layout, A)  # its reason has no room
    disk.room = None
    store.submit(row(A, "after")).result()
    store.submit(row(B, "other")).result()

    assert marked
    assert ids(store, A) == ["before", "after"]
    assert store.is_incomplete(A)
    assert not store.is_incomplete(B)
    assert b"during" not in (tmp_path / f"{A}.capture.jsonl").read_bytes()
    assert "a model call of rollout 0-0 is lost" in caplog.text
    store.close()


def test_one_bad_row_of_a_batch_does_not_take_the_others_along(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.refused = f"{B}.capture.jsonl"
    store = CaptureStore(tmp_path, disk=disk)
    store.open_for_writing()
    disk.sync_delay_s = 0.1
    batch = [store.submit(row(rollout, f"c{n}")) for n, rollout in enumerate([A, A, B, A])]
    outcomes = [future.exception() is None for future in batch]

    assert outcomes == [True, True, False, True]
    assert ids(store, A) == ["c0", "c1", "c3"]
    assert (store.is_incomplete(A), store.is_incomplete(B)) == (False, True)
    store.close()


def test_where_no_mark_can_be_written_the_claim_says_that_a_row_is_lost(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = CaptureStore(tmp_path, disk=disk)
    store.open_for_writing()
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    claim = store.claim(A)
    failed = store.submit(row(A, "c"), claim)
    with pytest.raises(OSError, match="No space"):
        failed.result()

    reader = CaptureStore(tmp_path)
    assert reader.is_incomplete(A)
    assert not reader.is_incomplete(B)
    assert not reader.is_pending(A)
    assert not (tmp_path / ".nemo_gym" / "incomplete" / A).exists()
    store.close()
    assert reader.is_incomplete(A)


@pytest.mark.parametrize("locks", [True, False])
@pytest.mark.parametrize("opened", [True, False])
def test_a_loss_that_could_not_be_written_down_is_as_soon_as_it_can_be(
    tmp_path: Path, opened: bool, locks: bool
) -> None:
    disk = FaultyDisk()
    if not locks:
        disk.locks = LocklessDisk.locks
    store = CaptureStore(tmp_path, disk=disk)
    if opened:
        store.open_for_writing()
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    assert store.submit(row(A, "lost")).exception() is not None
    disk.error = None
    store.submit(row(B, "later")).result()
    store.close()

    assert has_mark(store.layout, A)
    assert not has_mark(store.layout, B)
    CaptureStore(tmp_path).clear([A])
    assert not CaptureStore(tmp_path).is_incomplete(A)


def test_what_only_a_claim_says_of_a_rollout_is_cleared_with_it(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = CaptureStore(tmp_path, disk=disk)
    store.open_for_writing()
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    for rollout_id in (A, B):
        store.submit(row(rollout_id, "lost")).exception()
    disk.error = None
    store.clear([A])

    assert (store.is_incomplete(A), store.is_incomplete(B)) == (False, True)
    store.close()


def test_a_store_that_cannot_open_loses_the_row_and_says_so(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.error = OSError(errno.EROFS, "Read-only file system")
    store = CaptureStore(tmp_path / "ro", disk=disk)
    claim = store.claim(A)
    failed = store.submit(row(A, "c"), claim)
    store.mark_incomplete(B, "no store")

    assert isinstance(failed.exception(), OSError)
    store.close()


def test_a_log_that_cannot_be_synced_is_replaced_and_its_files_are_synced(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = CaptureStore(tmp_path, disk=disk)
    store.submit(row(A, "before")).result()
    disk.sync_error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(OSError, match="Input/output"):
        store.submit(row(A, "during")).result()
    disk.sync_error = None
    store.submit(row(A, "after")).result()

    assert ids(store, A) == ["before", "during", "after"]
    assert store.is_incomplete(A)
    store.close()


def test_no_descriptor_left_closes_what_is_only_kept_open_for_speed(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    for number in range(20):
        store.submit(row(RolloutId(f"{number}-0"), "a")).result()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open("/dev/null") as spare:
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare.fileno() + 1, limits[1]))
        try:
            failures = [
                store.submit(row(RolloutId(f"{number}-1"), "b")).exception() for number in range(5)
            ]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert failures == [None] * 5
    assert all(ids(store, RolloutId(f"{number}-1")) == ["b"] for number in range(5))
    store.close()


def test_a_slow_disk_holds_the_future_and_the_claim(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = CaptureStore(tmp_path, disk=disk)
    store.open_for_writing()
    disk.sync_delay_s = 0.2
    began = time.monotonic()
    future = store.submit(row(A, "c"), store.claim(A))
    pending = store.is_pending(A)
    future.result()

    assert time.monotonic() - began >= 0.2
    assert pending
    assert not store.is_pending(A)
    store.close()


def test_many_files_are_synced_at_once_and_the_log_goes_round(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path, segment_bytes=8192)
    futures = [store.submit(row(RolloutId(f"{n % 50}-0"), f"c{n}", 300)) for n in range(500)]
    for future in futures:
        future.result()
    logs = list((tmp_path / ".nemo_gym" / "log").glob("*.log"))
    store.close()

    assert len(logs) < 30
    assert sum(len(ids(store, rollout)) for rollout in store.rollouts()) == 500
