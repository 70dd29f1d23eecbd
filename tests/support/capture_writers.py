"""Processes that write to a capture directory, to be killed.

`python -m support.capture_writers` reads commands, one JSON object a line, and forks a writer for
each; it stays single-threaded itself. A writer prints `pid N`, then `kept ID` for each row that
was let go, as it happens; an id ends with the monotonic time at which its row was handed over.
The server prints `reaped N` when a writer is gone.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import RolloutId

__all__ = ["ROLLOUTS", "Ended", "WriterServer", "is_whole", "made_row"]

ROLLOUTS = [RolloutId(f"{n}-0") for n in range(4)]


def made_row(rollout: RolloutId, call_id: str, size: int) -> Row:
    """Return a row whose wholeness `is_whole` can tell."""
    letter = "abcdefgh"[size % 8]
    line = f'{{"model_call_id":"{call_id}","size":{size},"fill":"{letter * size}"}}'
    return Row(rollout, call_id, line.encode())


@dataclass(frozen=True)
class Ended:
    """A call whose row is made already, or cannot be made."""

    made: Row
    error: Exception | None = None

    @property
    def rollout_id(self) -> RolloutId:
        return self.made.rollout_id

    def row(self) -> Row:
        if self.error is not None:
            raise self.error
        return self.made


def is_whole(item: dict[str, Any]) -> bool:
    letter = "abcdefgh"[item["size"] % 8]
    return bool(item["fill"] == letter * item["size"])


class WriterServer:
    """The process that forks writers, seen from a test."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.capture_writers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
            text=True,
        )
        self.kept: set[str] = set()
        self.said: dict[str, str] = {}
        """The last text said under each word."""

    def start(self, directory: Path, **options: Any) -> int:
        """Fork a writer; return its process id once it writes."""
        stdin = self._pipe(self._process.stdin)
        stdin.write(json.dumps({"directory": str(directory), **options}) + "\n")
        stdin.flush()
        return int(self.wait_for("pid"))

    def wait_for(self, word: str, times: int = 1) -> str:
        """Read until a line with `word` has come `times` times; return what it says."""
        while times > 0:
            line = self._pipe(self._process.stdout).readline()
            if not line:
                raise AssertionError("the writers are gone")
            kind, _, text = line.strip().partition(" ")
            self.said[kind] = text
            if kind == "kept":
                self.kept.add(text)
            if kind == word:
                times -= 1
        return self.said[word]

    def kill(self, pid: int) -> None:
        """Kill a writer; everything that it printed has been read when this returns."""
        os.kill(pid, signal.SIGKILL)
        self.wait_for("reaped")

    def close(self) -> None:
        self._pipe(self._process.stdin).close()
        self._process.wait(20)
        self._pipe(self._process.stdout).close()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


def _say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def _kept(call_id: str, room: threading.Semaphore, future: "Future[None]") -> None:
    room.release()
    if future.exception() is None:
        _say(f"kept {call_id}")


def _write_forever(directory: str, seed: int, sizes: list[int], in_flight: int = 16) -> None:
    rng = random.Random(seed)  # noqa: S311 - a repeatable test
    store = CaptureStore(directory)
    room = threading.Semaphore(in_flight)
    _say(f"pid {os.getpid()}")
    number = 0
    while True:
        number += 1
        rollout = rng.choice(ROLLOUTS)
        room.acquire()
        call_id = f"{os.getpid()}-{seed}-{number}-{time.monotonic_ns()}"
        future = store.submit(made_row(rollout, call_id, rng.choice(sizes)), store.claim(rollout))
        future.add_done_callback(partial(_kept, call_id, room))


def _fork_and_sleep(directory: str) -> None:
    """Hold a claim, fork a child that lives on, and wait to be killed."""
    store = CaptureStore(directory)
    store.claim(ROLLOUTS[0])
    store.submit(made_row(ROLLOUTS[0], "parent", 10)).result()
    if os.fork() == 0:
        _say(f"child {os.getpid()}")
        time.sleep(60)
        os._exit(0)
    _say(f"pid {os.getpid()}")
    time.sleep(60)


_KINDS: dict[str, Callable[..., None]] = {"write": _write_forever, "fork": _fork_and_sleep}


def main() -> None:
    for line in sys.stdin:
        options = json.loads(line)
        kind = _KINDS[options.pop("kind", "write")]
        pid = os.fork()
        if pid == 0:
            try:
                kind(**options)
            finally:
                os._exit(1)
        os.waitpid(pid, 0)
        _say(f"reaped {pid}")


if __name__ == "__main__":
    main()
