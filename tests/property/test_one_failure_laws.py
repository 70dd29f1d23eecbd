"""One operation of the disk fails, whichever it is: it costs at most one row, and that is told."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from nemo_gym.capture.layout import Layout
from nemo_gym.capture.log import new_segment, write_records
from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.disk import REAL_DISK
from nemo_gym.files.jsonl import Damaged
from nemo_gym.ids import RolloutId
from support.disks import LocklessDisk
from support.watched_disk import WatchedDisk

A, B, LEFT = RolloutId("0-0"), RolloutId("0-1"), RolloutId("0-2")
SEGMENT_BYTES = 1 << 16


def row(rollout_id: RolloutId, call_id: str) -> Row:
    return Row(rollout_id, call_id, f'{{"model_call_id":"{call_id}"}}'.encode())


def ids(directory: Path, rollout_id: RolloutId) -> list[str]:
    items = CaptureStore(directory).read(rollout_id)
    return ["?" if isinstance(item, Damaged) else item["model_call_id"] for item in items]


def disk_of(kind: str, fail_at: int) -> WatchedDisk:
    disk = WatchedDisk(local=kind == "local", fail_at=fail_at)
    if kind == "lockless":
        disk.locks = LocklessDisk.locks
    return disk


def leave_log(layout: Layout) -> None:
    """Leave the log of a writer that went with the power, and nothing of what it holds."""
    for folder in layout.folders:
        folder.mkdir(exist_ok=True)
    layout.owner("gone").write_text("the boot before the cut")
    segment = new_segment(REAL_DISK, layout.segment("gone", 1), 1, 4096, fill=False)
    write_records(REAL_DISK, segment, [row(LEFT, "left")])
    REAL_DISK.close(segment.fd)


def use(directory: Path, disk: WatchedDisk) -> None:
    """Do all that is done with a directory, and check what was promised."""
    store = CaptureStore(directory, disk=disk, segment_bytes=SEGMENT_BYTES)
    before = store.submit(row(B, "before")).exception()
    first = store.submit(row(A, "first")).exception()
    file = next(directory.glob(f"{A}*.capture.jsonl"), None)
    if file is not None:
        file.unlink()
    second = store.submit(row(A, "second")).exception()
    marked_before = CaptureStore(directory).is_incomplete(B)
    cleared = False
    with suppress(OSError):
        store.clear([B, *(f"{number}-9" for number in range(100))])
        cleared = True
    after = store.submit(row(B, "after"), store.claim(B)).exception()
    with suppress(OSError):
        store.read(A)

    assert [before, first, second, after].count(None) >= 3
    # A row that could not be synced is told as lost, and may be there.
    assert ids(directory, A) in ([["second"]] if second is None else [[], ["second"]])
    assert CaptureStore(directory).is_incomplete(A) == (first is not None or second is not None)
    assert after is not None or ids(directory, B)[-1:] == ["after"]
    assert set(ids(directory, B)) <= ({"after"} if cleared else {"before", "after"})
    assert marked_before == (before is not None)
    if cleared:
        assert CaptureStore(directory).is_incomplete(B) == (after is not None)
    store.close()
    assert disk.opened == {}


@pytest.mark.parametrize("kind", ["local", "network", "lockless"])
def test_whichever_operation_fails_at_most_one_row_is_lost_and_told(kind: str) -> None:
    fail_at, operations = 0, 0
    while fail_at <= operations:
        with TemporaryDirectory(dir="/dev/shm") as folder:
            directory = Path(folder)
            leave_log(Layout(directory))
            disk = disk_of(kind, fail_at)
            use(directory, disk)

            # Who opens it next puts back what no one could meanwhile.
            assert ids(directory, LEFT) == ["left"]
            assert CaptureStore(directory).pending_count() == 0
        operations = operations or disk.operations
        fail_at += 1
    assert fail_at > 50
