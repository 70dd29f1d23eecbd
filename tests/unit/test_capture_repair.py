"""Damaged bytes are moved aside and no good row is lost, with locks and without."""

from pathlib import Path

import pytest

from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.disk import REAL_DISK, Disk
from nemo_gym.files.jsonl import Damaged
from nemo_gym.ids import RolloutId
from nemo_gym.observability.model_calls import merge_model_call_capture_into_record
from nemo_gym.observability.repair import repair_rollout
from nemo_gym.observability.summaries import summarize_all
from support.disks import LocklessDisk

A = RolloutId("0-0")
RECORD = {"_ng_task_index": 0, "_ng_rollout_index": 0}
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

    assert repaired.aside is not None
    assert (repaired.moved, repaired.aside.read_bytes()) == (3, b'{"torn": "x\n\xff\xfe\n[1]\n')
    store.submit(Row(A, "c2", GOOD[2])).result()
    assert path.read_bytes() == b"".join(line + b"\n" for line in GOOD)
    assert [item for item in store.read(A) if isinstance(item, Damaged)] == []
    assert repair_rollout(store, A, disk) == []
    store.close()


def whole(number: int) -> bytes:
    fields = '"dialect":"chat","status_code":200,"request":{"n":1.50},"response":null'
    return f'{{"model_call_id":"c{number}",{fields}}}'.encode()


def test_rows_that_share_a_line_get_lines_of_their_own(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    path = tmp_path / "0-0.capture.jsonl"
    half = whole(9)[:50]
    path.write_bytes(whole(0) + whole(1) + b"\n" + half + whole(2) + b"\0\0" + whole(3) + b"\n")

    (repaired,) = repair_rollout(store, A)

    assert path.read_bytes() == b"".join(whole(number) + b"\n" for number in range(4))
    assert (repaired.rows_parted, repaired.moved, repaired.moved_bytes) == (4, 2, 52)
    assert repaired.aside is not None
    assert repaired.aside.read_bytes() == half + b"\n\0\0\n"


def test_rows_that_only_share_a_line_leave_nothing_aside(tmp_path: Path) -> None:
    (tmp_path / "0-0.capture.jsonl").write_bytes(whole(0) + whole(1))

    (repaired,) = repair_rollout(CaptureStore(tmp_path), A)

    assert (repaired.rows_parted, repaired.moved, repaired.aside) == (2, 0, None)
    assert not (tmp_path / ".nemo_gym" / "damaged").exists()


def _gaps(directory: Path) -> object:
    record = merge_model_call_capture_into_record(dict(RECORD), [directory])
    return record["ng_model_call_capture"].get("gaps")


def test_what_was_damaged_is_told_for_ever_by_the_mark_of_its_rollout(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    (tmp_path / "0-0.capture.jsonl").write_bytes(whole(0) + b"\n" + whole(1)[:60])
    repair_rollout(store, A)

    assert store.is_incomplete(A)
    assert store.why_incomplete(A) == [
        "a row may be missing: a repair moved 1 damaged line (60 bytes) of 0-0.capture.jsonl "
        "to .nemo_gym/damaged/0-0.capture.jsonl.0"
    ]
    assert _gaps(tmp_path) == [{"code": "model_call_capture_incomplete"}]
    store.clear([A])
    assert not store.is_incomplete(A)


def test_a_rollout_of_which_nothing_but_damage_was_there_is_listed_on(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    (tmp_path / "0-0.capture.jsonl").write_bytes(whole(1)[:60])
    repair_rollout(store, A)

    (listed,) = summarize_all(store)
    assert (listed.rollout_id, listed.calls, listed.damaged, listed.incomplete) == (A, 0, 0, True)


def test_a_repair_that_cannot_tell_of_it_leaves_the_damage_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "0-0.capture.jsonl"
    path.write_bytes(whole(0) + b"\n" + whole(1)[:60])
    store = CaptureStore(tmp_path)
    store.layout.hidden.mkdir()
    store.layout.marks.write_text("no folder")

    with pytest.raises(OSError, match="incomplete"):
        repair_rollout(store, A)
    assert path.read_bytes() == whole(0) + b"\n" + whole(1)[:60]


def test_rows_that_only_were_given_lines_of_their_own_leave_no_mark(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    (tmp_path / "0-0.capture.jsonl").write_bytes(whole(0) + whole(1))
    repair_rollout(store, A)

    assert not store.is_incomplete(A)


def test_what_a_torn_row_quotes_is_no_row(tmp_path: Path) -> None:
    quoting = b'{"model_call_id":"c0","request":{"x":{"model_call_id":"q","status_code":1}},"re'
    (tmp_path / "0-0.capture.jsonl").write_bytes(quoting + b"\n")

    (repaired,) = repair_rollout(CaptureStore(tmp_path), A)

    assert (repaired.rows_parted, repaired.moved_bytes) == (0, len(quoting))
