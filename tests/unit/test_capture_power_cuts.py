"""What each promise of the store is worth when the power goes right behind it."""

import errno
from collections.abc import Sequence
from copy import copy
from pathlib import Path

import pytest

from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import RolloutId
from support.disks import DISKS, ForgetfulDisk, LocklessDisk

A, B = RolloutId("0-0"), RolloutId("0-1")
SEGMENT_BYTES = 1 << 16


def row(call_id: str) -> Row:
    return Row(A, call_id, f'{{"model_call_id":"{call_id}"}}'.encode())


def store_on(disk: ForgetfulDisk) -> CaptureStore:
    disk.root.mkdir(exist_ok=True)
    return CaptureStore(disk.root / "captures", disk=disk, segment_bytes=SEGMENT_BYTES)


def after_a_cut(disk: ForgetfulDisk, target: Path) -> CaptureStore:
    """Return a store on what a power cut at this moment leaves."""
    disk.cut().restore(disk.root, target, None)
    return CaptureStore(target / "captures")


def ids(store: CaptureStore) -> list[str]:
    return [dict(item)["model_call_id"] for item in store.read(A) if isinstance(item, dict)]


class ForgetfulLogDisk(ForgetfulDisk):
    """Tells of a failed sync of a log once, as a kernel does: later ones succeed in vain."""

    fails = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lost: set[Path] = set()

    def sync(self, fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if self.fails and path.suffix == ".log":
            self.lost.add(path)
            raise OSError(errno.EIO, "Input/output error")
        if path not in self.lost:
            super().sync(fd)


@pytest.mark.parametrize("before", [[], ["before"]], ids=["first row", "second row"])
def test_no_row_goes_to_a_segment_that_could_not_be_synced(
    tmp_path: Path, before: list[str]
) -> None:
    disk = ForgetfulLogDisk(tmp_path / "now")
    store = store_on(disk)
    store.open_for_writing()
    for call_id in before:
        store.submit(row(call_id)).result()
    disk.fails = True
    store.submit(row("during")).result()
    disk.fails = False
    store.submit(row("after")).result()

    assert len(disk.lost) == 1
    assert ids(after_a_cut(disk, tmp_path / "later")) == [*before, "during", "after"]
    store.close()


class ScarceLogDisk(ForgetfulDisk):
    """Takes a piece of what goes to the log, as a file system does that is full then."""

    log_room: int | None = None

    def write_parts_at(self, fd: int, parts: Sequence[bytes], offset: int) -> int:
        data = b"".join(parts)
        return super().write_parts_at(fd, [data[: self.log_room]], offset)


def test_a_row_that_fits_into_the_log_by_half_is_durable_otherwise(tmp_path: Path) -> None:
    disk = ScarceLogDisk(tmp_path / "now")
    store = store_on(disk)
    store.open_for_writing()
    disk.log_room = 20
    store.submit(row("by half")).result()
    disk.log_room = None
    store.submit(row("after")).result()

    assert ids(after_a_cut(disk, tmp_path / "later")) == ["by half", "after"]
    store.close()


@pytest.mark.parametrize("kind", DISKS)
@pytest.mark.parametrize("write", ["a row", "a mark"])
def test_what_is_written_is_durable_in_a_directory_that_was_made_just_before(
    tmp_path: Path, kind: str, write: str
) -> None:
    disk = ForgetfulDisk(tmp_path / "now", local=kind == "local", lockless=kind == "lockless")
    store = store_on(disk)
    store.directory.mkdir()  # and not synced
    if write == "a row":
        store.submit(row("c")).result()
    else:
        store.mark_incomplete(A, "a call broke off")
        store.flush()
    later = after_a_cut(disk, tmp_path / "later")

    assert (ids(later), later.is_incomplete(A)) == ((["c"], False), ([], True))[write == "a mark"]
    store.close()


def test_what_was_cleared_stays_gone_when_another_opener_looked_at_a_living_log(
    tmp_path: Path,
) -> None:
    disk = ForgetfulDisk(tmp_path / "now")
    store = store_on(disk)
    store.submit(row("cleared")).result()
    store.clear([A])
    other = store_on(disk)
    other.rollouts()  # looks through the logs
    disk.sync_file_system(disk.root)  # as the system does by itself after a while

    assert ids(after_a_cut(disk, tmp_path / "later")) == []
    store.close()


def without_locks(disk: ForgetfulDisk) -> ForgetfulDisk:
    """Return the same disk as a host sees it for which locks do not work there."""
    seen = copy(disk)
    seen.local, seen.locks = False, LocklessDisk.locks
    return seen


@pytest.mark.parametrize("others", [0, 100])
def test_who_has_no_locks_clears_for_ever_what_others_have_logged(
    tmp_path: Path, others: int
) -> None:
    disk = ForgetfulDisk(tmp_path / "now")
    store = store_on(disk)
    own = CaptureStore(store.directory, disk=without_locks(disk))
    for writing in (store, own):
        writing.submit(row("cleared")).result()
    clearing = CaptureStore(store.directory, disk=without_locks(disk))
    clearing.clear([A, *(f"{number}-1" for number in range(others))])
    seen = [ids(each) for each in (store, own, clearing)]
    store.submit(row("new")).result()

    assert seen == [[], [], []]
    assert ids(after_a_cut(disk, tmp_path / "later")) == ["new"]
    store.close()
    own.close()


def test_what_was_said_of_a_rollout_that_is_cleared_does_not_come_back(tmp_path: Path) -> None:
    disk = ForgetfulDisk(tmp_path / "now")
    store = store_on(disk)
    for rollout_id in (A, B):
        store.mark_incomplete(rollout_id, "a call broke off")
    store.flush()
    store.clear([A])
    later = after_a_cut(disk, tmp_path / "later")

    assert (later.is_incomplete(A), later.is_incomplete(B)) == (False, True)
    store.close()
