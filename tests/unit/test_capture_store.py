"""The capture store: rows, claims, marks, clearing, damage."""

import asyncio
import errno
import logging
import os
import shutil
import threading
from pathlib import Path

import pytest

from nemo_gym.capture.claims import release_together
from nemo_gym.capture.memory import MemoryStore
from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.errors import ConfigMistake, InvalidRolloutId
from nemo_gym.files.jsonl import Damaged
from nemo_gym.ids import RolloutId
from support.capture_writers import Ended
from support.disks import FaultyDisk, LocklessDisk

A, B, C = RolloutId("0-0"), RolloutId("0-1-a1"), RolloutId("c")


def row(rollout_id: RolloutId, call_id: str, size: int = 0, completed_at: float = 1.0) -> Row:
    line = f'{{"model_call_id":"{call_id}","completed_at":{completed_at},"x":"{"x" * size}"}}'
    return Row(rollout_id, call_id, line.encode())


def ids(store: CaptureStore, rollout_id: RolloutId) -> list[str]:
    rows = store.read(rollout_id)
    return ["damaged" if isinstance(item, Damaged) else item["model_call_id"] for item in rows]


def visible(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if not name.startswith("."))


def test_rows_come_back_in_the_order_in_which_they_were_handed_over(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path / "made" / "here")
    futures = [store.submit(row(A if n % 2 else B, f"c{n}")) for n in range(20)]
    for future in futures:
        future.result(10)

    assert ids(store, A) == [f"c{n}" for n in range(1, 20, 2)]
    assert ids(store, B) == [f"c{n}" for n in range(0, 20, 2)]
    assert store.rollouts() == [A, B]
    assert visible(store.directory) == ["0-0.capture.jsonl", "0-1-a1.capture.jsonl"]
    store.close()


async def test_a_row_handed_over_on_a_loop_is_there_when_its_future_ends(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    results = await asyncio.gather(*(store.keep(Ended(row(A, f"c{n}"))) for n in range(50)))

    assert results == [None] * 50
    assert len(ids(CaptureStore(tmp_path), A)) == 50
    store.close()


async def test_a_call_whose_row_cannot_be_made_costs_itself_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, error = CaptureStore(tmp_path), ValueError("a piece of the call")
    calls = [Ended(row(A, "c0")), Ended(row(B, "c1"), error), Ended(row(A, "c2"))]
    claims = [store.claim(call.rollout_id) for call in calls]
    kept = zip(calls, claims, strict=True)

    results = await asyncio.gather(*(store.keep(call, claim) for call, claim in kept))

    assert results == [None, error, None]
    assert (ids(store, A), ids(store, B)) == (["c0", "c2"], [])
    assert (store.is_incomplete(A), store.is_incomplete(B)) == (False, True)
    assert not store.is_pending(B)
    assert f"a call of rollout {B} is lost" in caplog.text
    store.close()
    marks = [path.read_text() for path in store.layout.hidden.rglob("*") if path.is_file()]
    assert not any("a piece of the call" in text for text in marks)


def test_a_loop_that_is_gone_costs_no_row(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.sync_delay_s = 0.05
    store = CaptureStore(tmp_path, disk=disk)

    async def hand_over() -> None:
        store.keep(Ended(row(A, "c")))

    asyncio.run(hand_over())
    store.close()

    assert ids(store, A) == ["c"]


def test_a_line_is_readable_before_it_is_durable(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = CaptureStore(tmp_path, disk=disk)
    store.open_for_writing()
    disk.sync_delay_s = 0.2
    future = store.submit(row(A, "c"))
    while not ids(CaptureStore(tmp_path), A):
        pass

    assert not future.done()
    store.close()
    assert future.done()


def test_nothing_is_there_where_nothing_was_written(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path / "missing")

    assert store.read("9-9") == []
    assert store.rollouts() == []
    assert not store.is_pending("9-9")
    assert not store.is_incomplete("9-9")
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("text", ["..", "a/b", "", "a" * 300, "a\0"])
def test_an_unsafe_id_is_refused_by_every_way_in(tmp_path: Path, text: str) -> None:
    store = CaptureStore(tmp_path)

    with pytest.raises(InvalidRolloutId):
        store.read(text)
    with pytest.raises(InvalidRolloutId):
        store.is_pending(text)
    with pytest.raises(InvalidRolloutId):
        store.is_incomplete(text)
    with pytest.raises(InvalidRolloutId):
        store.clear([text])


def test_a_claim_is_seen_by_every_store_until_it_is_released(tmp_path: Path) -> None:
    store, other = CaptureStore(tmp_path), CaptureStore(tmp_path)
    first, second = store.claim(A), store.claim(A)
    seen = [other.is_pending(A), store.is_pending(A), other.is_pending(B)]
    first.release()
    first.release()
    seen.append(other.is_pending(A))
    store.submit(row(A, "c"), second).result()

    assert seen == [True, True, False, True]
    assert not other.is_pending(A)
    store.close()


def test_claims_of_several_stores_are_released_together_and_each_once(tmp_path: Path) -> None:
    store, other, watching = (CaptureStore(tmp_path) for _ in range(3))
    elsewhere = MemoryStore()
    mine = [store.claim(A), store.claim(A), store.claim(B)]
    claims = [*mine, other.claim(B), other.claim(C), elsewhere.claim(C)]
    kept = store.claim(A)
    release_together([*claims, mine[0]])
    release_together(claims)

    assert [watching.is_pending(rollout) for rollout in (A, B, C)] == [True, False, False]
    assert not elsewhere.is_pending(C)
    kept.release()
    assert not watching.is_pending(A)
    store.close()
    other.close()


def test_rollouts_with_a_call_under_way_are_counted_whether_or_not_they_have_rows(
    tmp_path: Path,
) -> None:
    store, other = CaptureStore(tmp_path), CaptureStore(tmp_path)
    claims = [store.claim(A), store.claim(A), store.claim(B), other.claim(B)]
    counts = [CaptureStore(tmp_path).pending_count()]
    for claim in claims[:3]:
        claim.release()
    counts.append(CaptureStore(tmp_path).pending_count())
    claims[3].release()
    counts.append(CaptureStore(tmp_path).pending_count())
    store.close()
    other.close()

    assert counts == [2, 1, 0]


@pytest.mark.parametrize("torn", [b'{"model_call_id": "torn\xc3', b"12"])
def test_a_torn_line_is_not_yet_under_a_claim_and_damage_without(
    tmp_path: Path, torn: bytes
) -> None:
    store = CaptureStore(tmp_path)
    claim = store.claim(A)
    store.submit(row(A, "c")).result()
    with (tmp_path / f"{A}.capture.jsonl").open("ab") as file:
        file.write(torn)
    under_way = ids(store, A)
    claim.release()

    assert under_way == ["c"]
    assert ids(store, A) == ["c", "damaged"]
    store.submit(row(A, "d")).result()
    assert ids(store, A) == ["c", "damaged", "d"]
    store.close()


def test_a_last_line_that_only_lacks_its_end_is_a_row(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    (tmp_path / f"{A}.capture.jsonl").write_bytes(row(A, "whole").line)
    store.submit(row(A, "next")).result()

    assert ids(store, A) == ["whole", "next"]
    store.close()


def test_lines_without_anything_are_no_damage(tmp_path: Path) -> None:
    line = row(A, "c").line
    (tmp_path / f"{A}.capture.jsonl").write_bytes(b"\n  \r\n" + line + b"\r\n\t\n")

    assert ids(CaptureStore(tmp_path), A) == ["c"]


def test_json_that_a_strict_parser_refuses_is_read_all_the_same(tmp_path: Path) -> None:
    line = '{"model_call_id":"c","a":1e999,"b":"\\ud800"}'
    store = CaptureStore(tmp_path)
    store.submit(Row(A, "c", line.encode())).result()

    assert ids(store, A) == ["c"]
    store.close()


def test_clearing_drops_rows_and_marks_of_exactly_these_rollouts(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    for rollout_id in (A, B):
        store.mark_incomplete(rollout_id, "a reason")
        store.submit(row(rollout_id, f"c-{rollout_id}")).result()
    CaptureStore(tmp_path).clear([A, "7-7"])

    assert (ids(store, A), ids(store, B)) == ([], ["c-0-1-a1"])
    assert store.rollouts() == [B]
    CaptureStore(tmp_path).clear([A, *(f"{n}-0" for n in range(100))])
    assert (store.is_incomplete(A), store.is_incomplete(B)) == (False, True)
    assert store.rollouts() == [B]


def test_a_copy_without_its_hidden_folder_is_read_all_the_same(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path / "a", disk=LocklessDisk())
    store.submit(row(A, "c")).result()
    store.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b", ignore=shutil.ignore_patterns(".nemo_gym"))
    copy = CaptureStore(tmp_path / "b")

    assert ids(copy, A) == ["c"]
    copy.clear([A])
    assert ids(copy, A) == []


def test_a_server_that_holds_a_cleared_file_goes_on_writing_to_it(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    store.submit(row(A, "old", size=500)).result()
    file = (tmp_path / f"{A}.capture.jsonl").stat().st_ino
    CaptureStore(tmp_path).clear([A])
    store.submit(row(A, "new")).result()

    assert ids(store, A) == ["new"]
    assert (tmp_path / f"{A}.capture.jsonl").stat().st_ino == file
    assert b"\0" not in (tmp_path / f"{A}.capture.jsonl").read_bytes()
    store.close()


def test_a_file_that_somebody_removed_is_made_anew(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    store.submit(row(A, "old")).result()
    (tmp_path / f"{A}.capture.jsonl").unlink()
    store.submit(row(A, "new")).result()

    assert ids(store, A) == ["new"]
    store.close()


def test_a_directory_that_cannot_be_made_or_written_is_known_at_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    disk = FaultyDisk()
    disk.error = OSError(errno.EROFS, "Read-only file system")
    stores = [CaptureStore(tmp_path / "file" / "x"), CaptureStore(tmp_path / "ro", disk=disk)]
    for store in stores:
        with pytest.raises(ConfigMistake, match="cannot be written") as caught:
            store.open_for_writing()
        assert caught.value.where == "model_call_capture_dir"


def test_nothing_but_the_hidden_folder_is_there_before_the_first_row(tmp_path: Path) -> None:
    stores = [CaptureStore(tmp_path, disk=disk) for disk in (FaultyDisk(), LocklessDisk())]
    for store in stores:
        store.open_for_writing()

    assert os.listdir(tmp_path) == [".nemo_gym"]
    for store in stores:
        store.close()


def test_a_store_that_was_closed_opens_again(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    store.submit(row(A, "a")).result()
    store.close()
    store.submit(row(A, "b")).result()
    store.close()

    assert ids(store, A) == ["a", "b"]
    assert list((tmp_path / ".nemo_gym" / "log").iterdir()) == []


def test_a_store_closed_by_one_server_keeps_the_rows_and_claims_of_another(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    claim = store.claim(B)
    stop = threading.Event()

    def close_often() -> None:
        while not stop.is_set():
            store.close()

    closing = threading.Thread(target=close_often)
    closing.start()
    futures = [store.submit(row(A, f"c{n}"), store.claim(A)) for n in range(100)]
    errors = [future.exception(10) for future in futures]
    stop.set()
    closing.join()

    assert errors == [None] * 100
    assert ids(store, A) == [f"c{n}" for n in range(100)]
    assert (store.is_pending(A), store.is_pending(B)) == (False, True)
    claim.release()
    store.close()


def test_without_locks_every_writer_has_files_of_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stores = [CaptureStore(tmp_path, disk=LocklessDisk()) for _ in range(2)]
    for number in range(6):
        stores[number % 2].submit(row(A, f"c{number}", completed_at=10.0 - number)).result()
    claim = stores[0].claim(A)

    assert ids(stores[1], A) == ["c5", "c4", "c3", "c2", "c1", "c0"]
    assert all("~" in name for name in visible(tmp_path))
    assert stores[0].rollouts() == [A]
    assert not stores[0].is_pending(A)
    assert [r.levelno for r in caplog.records] == [logging.WARNING] * 2
    claim.release()
    stores[0].clear([A])
    assert ids(stores[1], A) == []
    for store in stores:
        store.close()


def test_on_a_file_system_not_known_to_be_local_the_files_are_synced(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.local = False
    store = CaptureStore(tmp_path, disk=disk)
    store.submit(row(A, "c")).result()

    assert ids(store, A) == ["c"]
    assert list((tmp_path / ".nemo_gym" / "log").iterdir()) == []
    disk.sync_error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(OSError, match="Input/output"):
        store.submit(row(A, "d")).result()
    assert store.is_incomplete(A)
    store.close()


def test_a_folder_above_that_may_only_be_passed_through_is_no_obstacle(tmp_path: Path) -> None:
    class PassThrough(FaultyDisk):
        def sync_directory(self, path: Path) -> None:
            if path == tmp_path:
                raise PermissionError(errno.EACCES, "Permission denied")
            super().sync_directory(path)

    for name, local in (("a", True), ("b", False)):
        disk = PassThrough()
        disk.local = local
        store = CaptureStore(tmp_path / name, disk=disk)
        store.submit(row(A, "c")).result()
        store.close()

        assert ids(store, A) == ["c"]
