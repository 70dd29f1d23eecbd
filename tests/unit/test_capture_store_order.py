"""In which order the store lets go: what a reader sees at any moment is never better than it is."""

import asyncio
import errno
import json
import os
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import pytest

from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import RolloutId
from support.disks import FaultyDisk

A = RolloutId("0-0")
LONG = 9 << 20


def row(call_id: str) -> Row:
    return Row(A, call_id, f'{{"model_call_id":"{call_id}"}}'.encode())


class WatchedDisk(FaultyDisk):
    """Lets a test look while a mark is made."""

    while_marking: Callable[[], None] | None = None

    def sync_directory(self, path: Path) -> None:
        if path.name == "incomplete" and self.while_marking is not None:
            self.while_marking()
        super().sync_directory(path)


class WatchedClaim:
    """A claim that looks, when it is released, whether who waits for the row has been told."""

    def __init__(self) -> None:
        self.waited_for: Future[Future[None]] = Future()
        self.had_been_told: list[bool] = []

    def release(self) -> None:
        self.had_been_told.append(self.waited_for.result().done())


def test_a_rollout_that_loses_a_row_is_pending_until_its_mark_is_there(tmp_path: Path) -> None:
    disk, reader, seen = WatchedDisk(), CaptureStore(tmp_path), list[bool]()
    store = CaptureStore(tmp_path, disk=disk)
    store.open_for_writing()
    (tmp_path / f"{A}.capture.jsonl").mkdir()  # no row can go there
    disk.while_marking = lambda: seen.append(reader.is_pending(A))

    failed = store.submit(row("lost"), store.claim(A))

    assert isinstance(failed.exception(), OSError)
    assert seen == [True]
    assert (reader.is_incomplete(A), reader.is_pending(A)) == (True, False)
    store.close()


@dataclass(frozen=True)
class LongCall:
    """A call whose row is made when it is asked for, and says what was stored by then."""

    number: int
    path: Path
    stored: list[int]
    rollout_id: RolloutId = A

    def row(self) -> Row:
        self.stored.append(self.path.stat().st_size if self.path.exists() else 0)
        line = json.dumps({"model_call_id": f"c{self.number}", "fill": "x" * LONG}).encode()
        return Row(A, f"c{self.number}", line)


async def test_long_rows_are_stored_one_by_one_in_their_order(tmp_path: Path) -> None:
    store, stored = CaptureStore(tmp_path), list[int]()
    path = store.layout.capture_file(A)
    calls = [LongCall(number, path, stored) for number in range(3)]

    results = await asyncio.gather(*(store.keep(call) for call in calls))

    assert results == [None] * 3
    assert [size // LONG for size in stored] == [0, 1, 2]
    rows = [item["model_call_id"] for item in store.read(A) if isinstance(item, dict)]
    assert rows == ["c0", "c1", "c2"]
    store.close()


class OvertakenDisk(FaultyDisk):
    """Lets another process go on just before a claim is looked at, once."""

    meanwhile: Callable[[], object] | None = None

    def open_read(self, path: Path) -> int:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().open_read(path)


def test_a_loss_is_told_at_every_moment_while_it_is_being_written_down(tmp_path: Path) -> None:
    disk, seen = FaultyDisk(), OvertakenDisk()
    store, reader = CaptureStore(tmp_path, disk=disk), CaptureStore(tmp_path, disk=seen)
    store.open_for_writing()
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    assert store.submit(row("lost")).exception() is not None
    disk.error = None
    seen.meanwhile = lambda: store.submit(row("later")).result()

    assert reader.is_incomplete(A)
    assert seen.meanwhile is None
    store.close()


def test_who_waits_for_a_row_goes_on_after_its_claim_is_released(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    store.open_for_writing()
    claim = WatchedClaim()
    future = store.submit(row("c"), claim)
    claim.waited_for.set_result(future)
    future.result()

    assert claim.had_been_told == [False]
    store.close()


def test_a_log_that_failed_is_gone_once_the_store_is_closed(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = CaptureStore(tmp_path, disk=disk)
    store.submit(row("before")).result()
    disk.sync_error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(OSError, match="Input/output"):
        store.submit(row("during")).result()
    disk.sync_error = None
    store.submit(row("after")).result()
    store.close()

    assert list((tmp_path / ".nemo_gym" / "log").iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_child_names_its_calls_otherwise() -> None:
    from nemo_gym.capture.middleware import _new_id  # noqa: PLC0415 - they go nowhere else

    _new_id()  # some are in stock now
    end, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, "".join(_new_id() for _ in range(3)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    told = os.read(end, 1000).decode()
    os.close(end)
    os.close(write)

    of_child = {told[at : at + 32] for at in range(0, len(told), 32)}
    assert len(of_child) == 3
    assert not of_child & {_new_id() for _ in range(100)}
