"""Rows of finished rollouts in, durable lines out: one sync for all that came meanwhile.

A thread of its own writes, so that the event loop never waits for a disk and a row that was handed
over is written whatever happens to the task that brought it. Memory holds what waits to be written;
the driver waits for each row, which bounds it.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol

from nemo_gym.errors import OutputUnusable
from nemo_gym.files.jsonl import JsonlAppender
from nemo_gym.rollouts.unusable import output_unusable
from nemo_gym.telemetry.observer import driver_metrics

__all__ = ["Appender", "RolloutSink", "RowKind"]

RowKind = Literal["output", "failures"]
_NOTHING = b""
"""No row: a file is only to be synced."""


class Appender(Protocol):
    """A file that lines are appended to."""

    def append(self, line: bytes) -> None:
        """Append one line, whole or not at all."""
        ...

    def sync(self) -> None:
        """Return once what was appended would survive a power cut."""
        ...

    def close(self) -> None:
        """Sync and close."""
        ...


class _Pending:
    """One line on its way to the disk."""

    __slots__ = ("done", "kind", "line")

    def __init__(self, kind: RowKind, line: bytes, done: "asyncio.Future[None]") -> None:
        self.kind: RowKind = kind
        self.line = line
        self.done = done


class RolloutSink:
    """Writes rows of one run to its output and its failures file.

    `keep` from one event loop only; `close` from anywhere, after which nothing may be kept.
    """

    def __init__(
        self,
        output: Path,
        failures: Path,
        *,
        open_file: Callable[[Path], Appender] = JsonlAppender,
    ) -> None:
        self._paths: Mapping[RowKind, Path] = {"output": output, "failures": failures}
        self._files: dict[RowKind, Appender] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[_Pending] = []
        self._changed = threading.Condition()
        self._closing = False
        for kind, path in self._paths.items():
            try:
                self._files[kind] = open_file(path)
            except OSError as error:
                self._close_files()
                raise _unusable(path, error) from error
        self._thread = threading.Thread(target=self._work, name="rollout-sink")
        self._thread.start()

    async def ready(self) -> None:
        """Return once both files could be synced; raises `OutputUnusable` when one cannot be.

        Whatever a first sync needs is had then, not when a thousand sockets are open.
        """
        await asyncio.gather(*(self.keep(kind, _NOTHING) for kind in self._paths))

    async def keep(self, kind: RowKind, line: bytes) -> None:
        """Return once `line` is durable; raises `OutputUnusable` when it cannot be written.

        A caller that is cancelled does not stop the line from being written.
        """
        self._loop = asyncio.get_running_loop()
        pending = _Pending(kind, line, self._loop.create_future())
        with self._changed:
            if self._closing:
                raise OutputUnusable(
                    "the output is closed",
                    where=str(self._paths[kind]),
                    mend="go on with --resume",
                )
            self._waiting.append(pending)
            self._changed.notify()
        await pending.done

    def close(self) -> None:
        """Write what waits, then close the files; closing twice is no error."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        try:
            while batch := self._next_batch():
                self._settle(self._commit(batch))
        finally:
            self._close_files()

    def _next_batch(self) -> list[_Pending]:
        """Return all that waits, once something does; empty when the sink is closed."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            batch, self._waiting = self._waiting, []
            return batch

    def _commit(self, batch: list[_Pending]) -> list[tuple[_Pending, OSError | None]]:
        started = time.perf_counter()
        errors: dict[int, OSError] = {}
        for index, pending in enumerate(batch):
            try:
                if pending.line != _NOTHING:
                    self._files[pending.kind].append(pending.line)
            except OSError as error:
                errors[index] = error
        for kind in {pending.kind for pending in batch}:
            try:
                self._files[kind].sync()
            except OSError as error:
                errors |= {i: error for i, pending in enumerate(batch) if pending.kind == kind}
        _record(batch, (time.perf_counter() - started) * 1000)
        return [(pending, errors.get(index)) for index, pending in enumerate(batch)]

    def _settle(self, results: list[tuple[_Pending, OSError | None]]) -> None:
        def settle() -> None:
            for pending, error in results:
                if pending.done.done():
                    continue  # its task was cancelled; the line is written all the same
                if error is None:
                    pending.done.set_result(None)
                else:
                    pending.done.set_exception(_unusable(self._paths[pending.kind], error))

        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(settle)

    def _close_files(self) -> None:
        for file in self._files.values():
            try:
                file.close()
            except OSError:  # every row that was confirmed has been synced already
                continue


def _unusable(path: Path, error: OSError) -> OutputUnusable:
    mend = "make room or permit writing there, then go on with --resume"
    return output_unusable("the rollouts cannot be written", error, path, mend)


def _record(batch: list[_Pending], took_ms: float) -> None:
    """Tell telemetry, where it is on, how big each row was and how long it took to be durable."""
    metrics = driver_metrics()
    if metrics is None:
        return
    rows = [(len(pending.line), took_ms) for pending in batch if pending.line != _NOTHING]
    if rows:
        metrics.writes.record_all(rows)
