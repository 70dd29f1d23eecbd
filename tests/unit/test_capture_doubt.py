"""Where the store cannot know, a reader is told the worse: a row may come, a row is missing."""

import errno
from pathlib import Path

from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.disk import Disk
from nemo_gym.ids import RolloutId
from support.disks import FaultyDisk

A, B = RolloutId("0-0"), RolloutId("0-1")
ROW = Row(A, "c", b'{"model_call_id":"c"}')


class UnreadableClaimsDisk(Disk):
    def open_read(self, path: Path) -> int:
        if path.parent.name == "claims":
            raise OSError(errno.EACCES, "Permission denied")
        return super().open_read(path)


def test_a_rollout_whose_claims_cannot_be_read_is_pending(tmp_path: Path) -> None:
    reader = CaptureStore(tmp_path, disk=UnreadableClaimsDisk())

    assert reader.is_pending(A)


def test_a_rollout_whose_losses_cannot_be_read_is_incomplete(tmp_path: Path) -> None:
    reader = CaptureStore(tmp_path, disk=UnreadableClaimsDisk())

    assert reader.is_incomplete(A)


def test_a_row_that_a_store_without_a_log_lost_makes_its_rollout_incomplete(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk()
    disk.sync_error = OSError(errno.EIO, "Input/output error")
    store, reader = CaptureStore(tmp_path, disk=disk), CaptureStore(tmp_path)
    failed = store.submit(ROW)

    assert isinstance(failed.exception(), OSError)
    assert reader.is_incomplete(A)
    assert not reader.is_incomplete(B)


def test_what_was_lost_before_a_store_could_open_is_told_once_it_has(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.error = OSError(errno.EROFS, "Read-only file system")
    store, reader = CaptureStore(tmp_path, disk=disk), CaptureStore(tmp_path)
    failed = store.submit(ROW)
    disk.error = None
    store.open_for_writing()

    assert isinstance(failed.exception(), OSError)
    assert reader.is_incomplete(A)
    assert not reader.is_incomplete(B)
    store.close()
