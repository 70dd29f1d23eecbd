"""A commit log that cannot be begun: nothing of it stays, and it is begun when it can be."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import RolloutId
from support.disks import FaultyDisk, ForgetfulDisk

A = RolloutId("0-0")
FULL = OSError(errno.ENOSPC, "No space left on device")


def row(call_id: str) -> Row:
    return Row(A, call_id, f'{{"model_call_id":"{call_id}"}}'.encode())


def ids(store: CaptureStore) -> list[str]:
    return [item["model_call_id"] for item in store.read(A) if isinstance(item, dict)]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system does not tell")
def test_beginning_it_again_and_again_takes_no_descriptor_and_leaves_no_file(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk()
    disk.sync_error = OSError(errno.EIO, "Input/output error")
    store, seen = CaptureStore(tmp_path, disk=disk), list[int]()

    for number in range(4):
        assert store.submit(row(f"c{number}"), store.claim(A)).exception() is not None
        seen.append(len(os.listdir("/proc/self/fd")))

    assert len(set(seen)) == 1
    assert os.listdir(tmp_path / ".nemo_gym" / "log") == []
    disk.sync_error = None
    store.submit(row("well"), store.claim(A)).result()
    assert "well" in ids(store)
    store.close()
    assert not store.is_pending(A)


def test_a_log_that_was_removed_and_cannot_be_made_anew_is_made_when_it_can_be(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk()
    store = CaptureStore(tmp_path, disk=disk)
    store.submit(row("first"), store.claim(A)).result()
    shutil.rmtree(tmp_path / ".nemo_gym")
    disk.sync_error = FULL
    assert store.submit(row("lost"), store.claim(A)).exception() is not None
    disk.sync_error = None
    store.submit(row("later"), store.claim(A)).result()

    owners = [path for path in (tmp_path / ".nemo_gym" / "log").iterdir() if path.suffix != ".log"]
    assert len(owners) == 1
    assert ids(store)[-1] == "later"
    store.close()


def test_a_row_with_a_line_break_comes_back_whole_after_a_power_cut(tmp_path: Path) -> None:
    root, later = tmp_path / "root", tmp_path / "later"
    root.mkdir()
    disk = ForgetfulDisk(root)
    store = CaptureStore(root / "captures", disk=disk)
    store.submit(Row(A, "c", b'{\n"model_call_id":\n"c"}')).result()

    disk.cut().restore(root, later, None)

    assert ids(CaptureStore(later / "captures")) == ["c"]
    store.close()
