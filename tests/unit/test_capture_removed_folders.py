"""Folders that somebody removed, or left behind: every row with a file is found by everybody."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.disk import FileState
from nemo_gym.files.jsonl import Damaged
from nemo_gym.ids import RolloutId
from nemo_gym.observability.repair import repair_rollout
from nemo_gym.rollouts.lease import CaptureIds, Holder, hold_capture_ids
from support.disks import DISKS, ForgetfulDisk, LocklessDisk, network_disk
from support.watched_disk import WatchedDisk

A, B = RolloutId("0-0"), RolloutId("0-1")
SEGMENT_BYTES = 4096


KINDS = pytest.mark.parametrize("kind", DISKS)


def store_on(directory: Path, kind: str) -> CaptureStore:
    return CaptureStore(directory, disk=DISKS[kind](), segment_bytes=SEGMENT_BYTES)


def row(call_id: str, rollout_id: RolloutId = A) -> Row:
    return Row(rollout_id, call_id, f'{{"model_call_id":"{call_id}","completed_at":1}}'.encode())


def ids(store: CaptureStore) -> list[str]:
    items = store.read(A)
    return sorted("?" if isinstance(item, Damaged) else item["model_call_id"] for item in items)


@KINDS
def test_a_directory_that_vanished_is_made_anew_with_its_claims(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / "above" / "captures"
    store = store_on(directory, kind)
    claim = store.claim(B)
    store.submit(row("old")).result()
    shutil.rmtree(tmp_path / "above")
    store.submit(row("new")).result()
    store_on(directory, kind).open_for_writing()

    assert ids(store) == ids(CaptureStore(directory)) == ["new"]
    assert CaptureStore(directory).is_pending(B) is (kind != "lockless")
    claim.release()
    assert not CaptureStore(directory).is_pending(B)
    store.close()


@KINDS
def test_a_hidden_folder_that_vanished_hides_no_row_and_no_claim(tmp_path: Path, kind: str) -> None:
    store, idle = store_on(tmp_path, kind), store_on(tmp_path, kind)
    claim = store.claim(B)
    store.submit(row("old")).result()
    idle.submit(row("of one that writes no more")).result()
    shutil.rmtree(tmp_path / ".nemo_gym")
    store.submit(row("new")).result()

    assert ids(CaptureStore(tmp_path)) == ["new", "of one that writes no more", "old"]
    assert CaptureStore(tmp_path).is_pending(B) is (kind != "lockless")
    claim.release()
    store.close()
    idle.close()


@KINDS
@pytest.mark.parametrize("rollout_id", [A, RolloutId("0-2")], ids=["as before", "of another"])
@pytest.mark.parametrize("another", [False, True])
def test_a_directory_that_was_moved_away_is_made_anew_with_its_claims(
    tmp_path: Path, kind: str, rollout_id: RolloutId, another: bool
) -> None:
    directory, moved = tmp_path / "captures", tmp_path / "moved"
    store = store_on(directory, kind)
    claim = store.claim(B)
    store.submit(row("old")).result()
    directory.rename(moved)
    if another:
        directory.mkdir()
    store.submit(row("new", rollout_id)).result()

    assert [item["model_call_id"] for item in CaptureStore(directory).read(rollout_id)] == ["new"]  # type: ignore[index]
    assert ids(CaptureStore(moved)) == ["old"]
    assert CaptureStore(directory).is_pending(B) is (kind != "lockless")
    assert not CaptureStore(moved).is_pending(B)
    claim.release()
    assert not CaptureStore(directory).is_pending(B)
    store.close()


@KINDS
def test_a_row_in_a_directory_that_took_the_place_of_one_survives_a_power_cut(
    tmp_path: Path, kind: str
) -> None:
    now, later = tmp_path / "now", tmp_path / "later"
    now.mkdir()
    disk = ForgetfulDisk(now, local=kind == "local", lockless=kind == "lockless")
    store = CaptureStore(now / "captures", disk=disk, segment_bytes=SEGMENT_BYTES)
    store.submit(row("old")).result()
    disk.sync_file_system(now)
    (now / "captures").rename(now / "moved")
    store.submit(row("new")).result()
    disk.cut().restore(now, later, None)
    reader = CaptureStore(later / "captures")
    reader.open_for_writing()

    assert "new" in ids(reader)  # the move itself may be lost
    store.close()
    reader.close()


@KINDS
def test_a_row_in_a_directory_made_anew_survives_a_power_cut(tmp_path: Path, kind: str) -> None:
    now, later = tmp_path / "now", tmp_path / "later"
    now.mkdir()
    disk = ForgetfulDisk(now, local=kind == "local", lockless=kind == "lockless")
    store = CaptureStore(now / "above" / "captures", disk=disk, segment_bytes=SEGMENT_BYTES)
    store.submit(row("old")).result()
    shutil.rmtree(now / "above")
    disk.sync_file_system(now)  # as the system does by itself after a while
    store.submit(row("new")).result()
    disk.cut().restore(now, later, None)
    reader = CaptureStore(later / "above" / "captures")
    reader.open_for_writing()

    assert ids(reader) == ["new"]
    store.close()
    reader.close()


class StaleDisk(WatchedDisk):
    """A file server's: says of a file that somebody else removed that it does not know it."""

    def state(self, fd: int) -> FileState:
        found = super().state(fd)
        if not found.links:
            raise OSError(errno.ESTALE, "Stale file handle")
        return found


@pytest.mark.parametrize("disk", [WatchedDisk(), WatchedDisk(local=False), StaleDisk(local=False)])
def test_nothing_of_a_folder_that_vanished_stays_open(tmp_path: Path, disk: WatchedDisk) -> None:
    store = CaptureStore(tmp_path, disk=disk, segment_bytes=SEGMENT_BYTES)
    claim = store.claim(B)
    for call_id in ("first", "second"):
        store.submit(row(call_id)).result()
        shutil.rmtree(tmp_path / ".nemo_gym")
    store.submit(row("third")).result()

    assert CaptureStore(tmp_path).is_pending(B)
    claim.release()
    store.close()
    assert ids(store) == ["first", "second", "third"]
    assert disk.opened == {}


def open_it(directory: Path) -> None:
    CaptureStore(directory).open_for_writing()


def open_it_without_locks(directory: Path) -> None:
    CaptureStore(directory, disk=LocklessDisk()).open_for_writing()


def hold_its_ids(directory: Path) -> None:
    lease = hold_capture_ids(directory, CaptureIds(None, frozenset()), Holder("x", "now", 1, "h"))
    assert lease is not None
    lease.close()


def repair_it(directory: Path) -> None:
    with (directory / f"{B}.capture.jsonl").open("ab") as file:
        file.write(b"no row\n")
    assert repair_rollout(CaptureStore(directory), B)


@pytest.mark.parametrize("made_by", [open_it, open_it_without_locks, hold_its_ids, repair_it])
@pytest.mark.parametrize("others", [0, 100])
def test_a_copy_without_its_hidden_folder_keeps_its_rows_whoever_makes_one(
    tmp_path: Path, made_by: Callable[[Path], None], others: int
) -> None:
    first, second, shared = (
        CaptureStore(tmp_path / "a", disk=LocklessDisk()),
        CaptureStore(tmp_path / "a", disk=LocklessDisk()),
        CaptureStore(tmp_path / "a", disk=network_disk()),
    )
    for number, store in enumerate((first, second, shared)):
        store.submit(row(f"c{number}")).result()
        store.submit(row(f"d{number}", B)).result()
        store.close()
    left_out = shutil.ignore_patterns(".nemo_gym")
    copy = Path(shutil.copytree(tmp_path / "a", tmp_path / "b", ignore=left_out))
    made_by(copy)

    assert (copy / ".nemo_gym").exists()
    assert ids(CaptureStore(copy)) == ["c0", "c1", "c2"]
    CaptureStore(copy).clear([A, *(f"{number}-9" for number in range(others))])
    assert ids(CaptureStore(copy)) == []
    assert CaptureStore(copy).rollouts() == [B]


def test_the_writers_of_a_copy_are_named_for_ever(tmp_path: Path) -> None:
    now, later = tmp_path / "now", tmp_path / "later"
    now.mkdir()
    store = CaptureStore(now / "a", disk=LocklessDisk())
    store.submit(row("c")).result()
    store.close()
    shutil.rmtree(now / "a" / ".nemo_gym")
    disk = ForgetfulDisk(now)
    disk.sync_file_system(now)
    opened = CaptureStore(now / "a", disk=disk, segment_bytes=SEGMENT_BYTES)
    opened.open_for_writing()
    disk.cut().restore(now, later, None)

    assert ids(CaptureStore(later / "a")) == ["c"]
    opened.close()


def test_an_opener_that_was_killed_while_it_named_the_writers_hides_none(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{A}~{name}.capture.jsonl").write_bytes(row(name).line)
    (tmp_path / ".nemo_gym" / "writers").mkdir(parents=True)
    (tmp_path / ".nemo_gym" / "writers" / "a").touch()

    assert ids(CaptureStore(tmp_path)) == ["a", "b"]
    open_it(tmp_path)
    assert ids(CaptureStore(tmp_path)) == ["a", "b"]


def test_a_name_that_is_no_name_of_a_file_stops_nobody(tmp_path: Path) -> None:
    for name in (".", ".."):
        (tmp_path / f"{A}~{name}.capture.jsonl").write_bytes(row("odd").line)
    store = CaptureStore(tmp_path)
    store.submit(row("c")).result()

    assert ids(store) == ["c"]
    store.close()
