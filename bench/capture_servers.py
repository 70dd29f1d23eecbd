"""Servers that `bench/capture.py` measures: the stack of `gym capture serve` on other stores.

    python bench/capture_servers.py KIND UPSTREAM [DIRECTORY]

`off` captures nothing. `sync per batch` and `file per call` are floors: the same stack makes the
same rows, and keeps them so that a power cut cannot take them, and no more: no claims, no marks,
no file a reader would find (`sync per batch`), no batches (`file per call`).
"""

import asyncio
import fcntl
import json
import os
import signal
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import uvloop

from nemo_gym.capture.row import Row
from nemo_gym.ids import RolloutId, parse_rollout_id
from nemo_gym.runtime.capture_server import CaptureServer, provider_at
from nemo_gym.runtime.memory import settle_memory
from nemo_gym.servers.forward import Forwarder
from nemo_gym.servers.serve import AppServer, bind_socket


class _NoClaim:
    def release(self) -> None:
        pass


class _Floor:
    """The part of a store that a floor does without."""

    def claim(self, rollout_id: RolloutId) -> _NoClaim:
        return _NO_CLAIM

    def submit(self, row: Row, claim: Any = None) -> "Future[None]":
        raise NotImplementedError

    def mark_incomplete(self, rollout_id: RolloutId, reason: str, claim: Any = None) -> None:
        raise SystemExit(f"a row of {rollout_id} is lost: {reason}")


_NO_CLAIM = _NoClaim()


class SyncPerBatch(_Floor):
    """One file for all; append what waits, one fdatasync, one wake-up."""

    def __init__(self, directory: Path) -> None:
        self._fd = os.open(directory / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._jobs: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
        Thread(target=self._write, daemon=True).start()

    def keep(self, call: Any, claim: Any = None) -> Any:
        future = asyncio.get_running_loop().create_future()
        self._jobs.put((call, future))
        return future

    def _write(self) -> None:
        while True:
            batch = [self._jobs.get()]
            try:
                while True:
                    batch.append(self._jobs.get_nowait())
            except Empty:
                pass
            left = memoryview(b"\n".join([*(call.row().line for call, _ in batch), b""]))
            while left:
                left = left[os.write(self._fd, left) :]
            os.fdatasync(self._fd)
            futures = [future for _, future in batch]
            futures[0].get_loop().call_soon_threadsafe(_end, futures)


def _end(futures: list[Any]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


class FilePerCall(_Floor):
    """The plain way: open the rollout's file, lock, write, sync, close, in a pool of threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._pool = ThreadPoolExecutor(6)

    def keep(self, call: Any, claim: Any = None) -> Any:
        return asyncio.get_running_loop().run_in_executor(self._pool, self._write, call)

    def _write(self, call: Any) -> None:
        row = call.row()
        path = self._directory / f"{row.rollout_id}.capture.jsonl"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.write(fd, row.line + b"\n")
            os.fsync(fd)
        finally:
            os.close(fd)


STORES: dict[str, Any] = {
    "off": lambda _: None,
    "sync per batch": SyncPerBatch,
    "file per call": FilePerCall,
}


async def serve(kind: str, upstream: str, directory: Path) -> None:
    store = STORES[kind](directory)
    app = CaptureServer(Forwarder(provider_at(upstream, None)), store, parse_rollout_id("others"))
    sock = bind_socket("127.0.0.1", 0)
    server = AppServer(app, sock, "capture_serve")
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    await server.start()
    settle_memory()
    print(json.dumps({"origin": f"http://127.0.0.1:{sock.getsockname()[1]}"}), flush=True)
    await stopping.wait()
    await server.stop(1.0)


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
