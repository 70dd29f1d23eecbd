"""What durable capture costs: records a second, CPU seconds per 1,000 records, beside floors.

    python bench/store.py [--directory DIR] [--records N] [--repeat R]

Every way keeps the same promise, a record that a power cut cannot take, for the same callers on
one event loop; the ways are run in turns and the medians printed. `tmpfs` is the store where a
sync costs nothing.
"""

import argparse
import asyncio
import fcntl
import os
import resource
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

import uvloop

from nemo_gym.capture.row import Row
from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import RolloutId

ROLLOUTS = 64
Keep = Callable[[int, bytes], Awaitable[object]]


@dataclass(frozen=True)
class Load:
    callers: int
    size: int
    records: int


@dataclass(frozen=True)
class Figures:
    rate: float
    cpu: float
    p50_ms: float
    p99_ms: float


async def drive(keep: Keep, load: Load) -> Figures:
    """Let `callers` keep records one after the other; every record waits until it is durable."""
    waits: list[float] = []
    line = b'{"model_call_id":"x","fill":"' + b"x" * load.size + b'"}'

    async def caller(number: int) -> None:
        for _ in range(load.records // load.callers):
            began = time.perf_counter()
            await keep(number, line)
            waits.append(time.perf_counter() - began)

    cpu, began = cpu_seconds(), time.perf_counter()
    await asyncio.gather(*(caller(number) for number in range(load.callers)))
    took, used = time.perf_counter() - began, cpu_seconds() - cpu
    waits.sort()
    return Figures(
        len(waits) / took,
        used / len(waits) * 1000,
        waits[len(waits) // 2] * 1000,
        waits[len(waits) * 99 // 100] * 1000,
    )


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def the_store(directory: Path, load: Load) -> Figures:
    store = CaptureStore(directory)
    store.open_for_writing()
    rollouts = [RolloutId(f"{n}-0") for n in range(ROLLOUTS)]

    async def keep(number: int, line: bytes) -> object:
        rollout = rollouts[number % ROLLOUTS]
        return await store.keep(Row(rollout, uuid.uuid4().hex, line), store.claim(rollout))

    figures = uvloop.run(drive(keep, load))
    store.close()
    return figures


def store_on_tmpfs(_: Path, load: Load) -> Figures:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        return the_store(Path(folder), load)


def bare_sync_per_batch(directory: Path, load: Load) -> Figures:
    """One file, append, one fdatasync for all that waits: no reader would find its rollout."""
    jobs: SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = SimpleQueue()
    fd = os.open(directory / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def end(futures: "list[asyncio.Future[None]]") -> None:
        for future in futures:
            future.set_result(None)

    def write() -> None:
        while (job := jobs.get()) is not None:
            batch = [job]
            try:
                while (more := jobs.get_nowait()) is not None:
                    batch.append(more)
            except Empty:
                pass
            os.write(fd, b"\n".join(line for line, _ in batch))
            os.fdatasync(fd)
            batch[0][1].get_loop().call_soon_threadsafe(end, [future for _, future in batch])

    def keep(_: int, line: bytes) -> "asyncio.Future[None]":
        future = asyncio.get_running_loop().create_future()
        jobs.put((line, future))
        return future

    thread = Thread(target=write)
    thread.start()
    figures = uvloop.run(drive(keep, load))
    jobs.put(None)
    thread.join()
    os.close(fd)
    return figures


def open_lock_write_sync_close(directory: Path, load: Load) -> Figures:
    """The plain way: each record by itself, in a pool of threads."""
    pool = ThreadPoolExecutor(6)

    def write(number: int, line: bytes) -> None:
        fd = os.open(directory / f"{number % ROLLOUTS}-0", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.write(fd, line + b"\n")
            os.fsync(fd)
        finally:
            os.close(fd)

    def keep(number: int, line: bytes) -> "asyncio.Future[None]":
        return asyncio.get_running_loop().run_in_executor(pool, write, number, line)

    figures = uvloop.run(drive(keep, load))
    pool.shutdown()
    return figures


WAYS: dict[str, Callable[[Path, Load], Figures]] = {
    "store": the_store,
    "store on tmpfs": store_on_tmpfs,
    "bare fdatasync per batch": bare_sync_per_batch,
    "open, lock, write, fsync, close": open_lock_write_sync_close,
}


def measure(directory: Path, load: Load, repeat: int) -> dict[str, Figures]:
    runs: dict[str, list[Figures]] = {name: [] for name in WAYS}
    for _ in range(repeat):
        for name, way in WAYS.items():
            with tempfile.TemporaryDirectory(dir=directory) as folder:
                runs[name].append(way(Path(folder), load))
    return {
        name: Figures(
            *(
                statistics.median(getattr(figures, field) for figures in found)
                for field in ("rate", "cpu", "p50_ms", "p99_ms")
            )
        )
        for name, found in runs.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What durable capture costs.")
    parser.add_argument("--directory", type=Path, default=Path(), help="on the disk to measure")
    parser.add_argument("--records", type=int, default=8000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    print(f"{'':34}{'records/s':>10}{'CPU s/1000':>12}{'p50 ms':>9}{'p99 ms':>9}")
    for callers, size in [(1, 4000), (64, 4000), (1024, 4000), (64, 64_000)]:
        records = options.records // (16 if callers == 1 else 4 if size > 10_000 else 1)
        print(f"{callers} callers, {size} bytes")
        load = Load(callers, size, max(records, callers))
        for name, found in measure(options.directory, load, options.repeat).items():
            print(
                f"  {name:32}{found.rate:10.0f}{found.cpu:12.4f}"
                f"{found.p50_ms:9.2f}{found.p99_ms:9.2f}"
            )


if __name__ == "__main__":
    main()
