"""The thread that makes rows durable: rows in, futures that end when a power cut cannot hurt.

It takes all that is waiting as one batch: each line goes to its capture file, so that every
reader sees it; then one record a row goes to the commit log and one sync covers them all; then
the futures end. What cannot be stored marks its rollout, and where even that fails the claim says
so. It never stops because of an error.
"""

import errno
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from nemo_gym.capture.claims import Claims
from nemo_gym.capture.commit_log import CommitLog
from nemo_gym.capture.layout import Layout
from nemo_gym.capture.log import LogRecord
from nemo_gym.capture.marks import write_mark
from nemo_gym.capture.rollout_files import RolloutFiles, sync_files
from nemo_gym.capture.row import Claim, Row
from nemo_gym.files.disk import Disk
from nemo_gym.ids import RolloutId
from nemo_gym.telemetry.work import capture_committed, capture_failed, capture_submitted

__all__ = ["Writer", "WriterParts"]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class WriterParts:
    """What a writer works with; all of it belongs to one process."""

    layout: Layout
    disk: Disk
    files: RolloutFiles
    claims: Claims
    new_log: Callable[[], CommitLog] | None
    """Opens a commit log; None where capture files are synced themselves."""


@dataclass(frozen=True, slots=True)
class _Job:
    """A row to store, a mark to make, or neither: a flush."""

    future: "Future[None]"
    row: Row | None = None
    rollout_id: RolloutId | None = None
    reason: str = ""
    claim: Claim | None = None


class Writer:
    """Hands rows to its thread. `submit` and `mark` may be called from any thread."""

    def __init__(self, parts: WriterParts) -> None:
        self._parts = parts
        self._log = parts.new_log() if parts.new_log else None
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="nemo-gym-capture", daemon=True)
        self._thread.start()

    def submit(self, row: Row, claim: Claim | None) -> "Future[None]":
        """Hand over a row; see `RowStore.submit`."""
        capture_submitted()
        return self._put(_Job(Future(), row=row, claim=claim))

    def mark(self, rollout_id: RolloutId, reason: str, claim: Claim | None) -> "Future[None]":
        """Have a rollout marked as incomplete."""
        return self._put(_Job(Future(), rollout_id=rollout_id, reason=reason, claim=claim))

    def flush(self) -> "Future[None]":
        """Return a future that ends when everything handed over before has ended."""
        return self._put(_Job(Future()))

    def close(self) -> None:
        """Finish what was handed over, then sync the capture files and remove the log."""
        self._closed = True
        self._jobs.put(None)
        self._thread.join()
        self._parts.files.close()
        if self._log is not None:
            self._log.close()

    def forget(self) -> None:
        """In a forked child: close the copies of the parent's descriptors."""
        self._parts.files.close()
        if self._log is not None:
            self._log.forget()

    def _put(self, job: _Job) -> "Future[None]":
        if self._closed:
            job.future.set_exception(RuntimeError("the capture store is closed"))
            _release(job)
        else:
            self._jobs.put(job)
        return job.future

    def _run(self) -> None:
        going = True
        while going:
            batch, going = self._next_batch()
            try:
                self._commit(batch)
            except Exception as error:  # the wall between capture and calls
                logger.exception("capture: a batch of %d rows failed", len(batch))
                for job in batch:
                    self._fail(job, error)

    def _next_batch(self) -> tuple[list[_Job], bool]:
        """Wait for a job, take all that came with it; False: no more is to come."""
        batch: list[_Job] = []
        job = self._jobs.get()
        while job is not None:
            batch.append(job)
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return batch, True
        return batch, False

    def _commit(self, batch: list[_Job]) -> None:
        began = time.perf_counter()
        written: list[tuple[Path, LogRecord]] = []
        stored: list[_Job] = []
        for job in batch:
            if job.row is None:
                continue
            try:
                path = self._parts.files.append(job.row.rollout_id, job.row.line)
            except OSError as error:
                self._fail(job, error)
            else:
                row = job.row
                written.append((path, LogRecord(row.rollout_id, row.model_call_id, row.line)))
                stored.append(job)
        if written:
            self._make_durable(written, stored)
            size = sum(len(record.line) for _, record in written)
            capture_committed(len(written), size, time.perf_counter() - began)
        for job in batch:
            self._end(job)

    def _make_durable(self, written: list[tuple[Path, LogRecord]], stored: list[_Job]) -> None:
        try:
            log = self._usable_log()
            if log is not None:
                log.commit(written)
                return
        except OSError as error:
            logger.warning("capture: the commit log failed, files are synced instead: %r", error)
        try:
            sync_files(self._parts.disk, self._parts.layout.directory, {p for p, _ in written})
        except OSError as error:
            for job in stored:
                self._fail(job, error)

    def _usable_log(self) -> CommitLog | None:
        """Return the log; a new one, with new claims, when somebody removed the directory."""
        if self._log is not None and self._log.is_gone() and self._parts.new_log is not None:
            logger.warning("capture: %s was removed; it is made anew", self._parts.layout.hidden)
            self._log.forget()
            self._log = self._parts.new_log()
            self._parts.claims.reopen()
        return self._log

    def _end(self, job: _Job) -> None:
        """Mark what is to be marked, release the claim, then let the caller go on."""
        if job.rollout_id is not None:
            self._mark(job.rollout_id, job.reason)
        _release(job)
        if not job.future.done():
            job.future.set_result(None)

    def _fail(self, job: _Job, error: Exception) -> None:
        if job.future.done():
            return
        if job.row is not None:
            capture_failed(_reason_code(error))
            logger.error(
                "capture: a model call of rollout %s is lost: %r", job.row.rollout_id, error
            )
            self._mark(job.row.rollout_id, f"{job.row.model_call_id}: {error}")
        _release(job)
        job.future.set_exception(error)

    def _mark(self, rollout_id: RolloutId, reason: str) -> None:
        try:
            write_mark(self._parts.layout, self._parts.disk, rollout_id, reason)
        except OSError:
            self._parts.claims.hold_lost(rollout_id)


def _release(job: _Job) -> None:
    if job.claim is not None:
        job.claim.release()


def _reason_code(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return errno.errorcode.get(error.errno, str(error.errno))
    return type(error).__name__
