"""Writers killed at random moments beside a live one: released rows are there, nothing is fused."""

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.jsonl import Damaged
from support.capture_writers import ROLLOUTS, WriterServer, is_whole, made_row
from support.disks import FaultyDisk


class OtherBoot(FaultyDisk):
    """A disk whose page cache was lost since the logs were written."""

    def page_cache_id(self) -> str | None:
        return "another boot"


class LiveWriter:
    """Writes rows in this process until it is stopped."""

    def __init__(self, directory: Path) -> None:
        self.store = CaptureStore(directory)
        self.kept: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self.store.close()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            rollout = ROLLOUTS[number % len(ROLLOUTS)]
            row = made_row(rollout, f"live-{number}", 4000)
            self.store.submit(row, self.store.claim(rollout)).result()
            self.kept.add(row.model_call_id)
            time.sleep(0.002)


@pytest.fixture
def writers() -> Generator[WriterServer]:
    server = WriterServer()
    yield server
    server.close()


def check(directory: Path, kept: set[str], disk: FaultyDisk | None = None) -> int:
    """Check every line of the directory; return how many are damaged."""
    store = CaptureStore(directory, disk=disk or FaultyDisk())
    found: list[str] = []
    damaged = 0
    for rollout in ROLLOUTS:
        assert not store.is_pending(rollout)
        for item in store.read(rollout):
            if isinstance(item, Damaged):
                damaged += 1
                data = item.path.read_bytes()[item.offset : item.offset + item.length]
                assert data.count(b"model_call_id") <= 1
            else:
                assert is_whole(item)
                found.append(item["model_call_id"])
    assert len(found) == len(set(found))
    assert set(found) >= kept
    return damaged


def read_all(directory: Path) -> list[dict[str, Any]]:
    items = CaptureStore(directory).read(ROLLOUTS[0])
    return [item for item in items if not isinstance(item, Damaged)]


@pytest.mark.parametrize("sizes", [[4_000], [64_000]], ids=["4KB", "64KB"])
def test_50_kills_under_load_beside_a_live_writer_lose_and_fuse_nothing(
    tmp_path: Path, writers: WriterServer, sizes: list[int]
) -> None:
    directory, rng, kills = tmp_path / "captures", random.Random(7), 50  # noqa: S311
    live = LiveWriter(directory)
    for kill in range(kills):
        pid = writers.start(directory, seed=kill, sizes=sizes)
        writers.wait_for("kept", rng.randint(1, 40))
        time.sleep(rng.random() * 0.01)
        writers.kill(pid)
    live.stop()
    kept = writers.kept | live.kept
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)

    damaged = check(directory, kept)
    assert damaged <= kills
    assert check(copy, kept, OtherBoot()) <= damaged
    assert list((directory / ".nemo_gym" / "log").iterdir()) == []


def test_a_child_that_outlives_its_killed_parent_holds_nothing_of_it(
    tmp_path: Path, writers: WriterServer
) -> None:
    pid = writers.start(tmp_path, kind="fork")
    store = CaptureStore(tmp_path)
    before = store.is_pending(ROLLOUTS[0])
    child = int(writers.said.get("child") or writers.wait_for("child"))
    writers.kill(pid)
    try:
        after = store.is_pending(ROLLOUTS[0])
        rows = [item["model_call_id"] for item in read_all(tmp_path)]
        logs = list((tmp_path / ".nemo_gym" / "log").iterdir())
    finally:
        os.kill(child, signal.SIGKILL)

    assert (before, after) == (True, False)
    assert rows == ["parent"]
    assert logs == []
