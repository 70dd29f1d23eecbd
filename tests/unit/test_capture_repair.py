"""Damaged bytes are moved aside and no good row is lost, with locks and without."""

from pathlib import Path

import pytest

from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.disk import REAL_DISK, Disk
from nemo_gym.files.jsonl import Damaged
from nemo_gym.ids import RolloutId
from nemo_gym.observability.repair import repair_rollout
from support.disks import LocklessDisk

A = RolloutId("0-0")
GOOD = [b'{"model_call_id":"c%d","n":1.50}' % n for n in range(3)]


@pytest.mark.parametrize("disk", [REAL_DISK, LocklessDisk()], ids=["locks", "no locks"])
def test_damage_between_good_rows_goes_and_a_server_that_holds_the_file_writes_on(
    tmp_path: Path, disk: Disk
) -> None:
    store = CaptureStore(tmp_path, disk=disk)
    store.submit(Row(A, "c0", GOOD[0])).result()
    (path,) = tmp_path.glob("*.jsonl")
    with path.open("ab") as file:
        file.write(b'{"torn": "x\n' + GOOD[1] + b"\n\xff\xfe\n[1]\n")

    (repaired,) = repair_rollout(store, A, disk)

    assert (repaired.moved, repaired.aside.read_bytes()) == (3, b'{"torn": "x\n\xff\xfe\n[1]\n')
    store.submit(Row(A, "c2", GOOD[2])).result()
    assert path.read_bytes() == b"".join(line + b"\n" for line in GOOD)
    assert [item for item in store.read(A) if isinstance(item, Damaged)] == []
    assert repair_rollout(store, A, disk) == []
    store.close()
