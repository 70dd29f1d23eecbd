"""The thread that makes rows durable: rows in, futures that end when a power cut cannot hurt.

It takes all that is waiting as one batch: the rows of calls are made; each line goes to its capture
file, so that every reader sees it; then one record a row goes to the commit log and one sync covers
them all; then the futures end. What cannot be made or stored marks its rollout, and where even that
fails the claim says so. It never stops because of an error.
"""

import asyncio
import errno
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from nemo_gym.capture.claims import Claims, release_together
from nemo_gym.capture.commit_log import CommitLog
from nemo_gym.capture.jobs import Ended, Job, end_jobs
from nemo_gym.capture.layout import Layout
from nemo_gym.capture.marks import write_mark
from nemo_gym.capture.rollout_files import RolloutFiles, sync_each_file, sync_files
from nemo_gym.capture.row import Row, row_of
from nemo_gym.files.disk import Disk
from nemo_gym.ids import RolloutId
from nemo_gym.telemetry.work import capture_committed, capture_failed, capture_submitted

__all__ = ["Writer", "WriterParts"]

logger = logging.getLogger(__name__)

_LONG = 8 << 20
"""Bytes of rows beyond which no more are made before these are stored."""


@dataclass(slots=True)
class WriterParts:
    """What a writer works with; all of it belongs to one process."""

    layout: Layout
    disk: Disk
    files: RolloutFiles
    claims: Claims
    prepare: Callable[[], CommitLog | None]
    """Makes what is missing of the hidden folder, and opens a commit log there.

    Returns None where capture files are synced themselves.
    """


class Writer:
    """Takes jobs from any thread and does them on its own."""

    def __init__(self, parts: WriterParts) -> None:
        self._parts = parts
        self._log = parts.prepare()
        self._prepared = True
        """False once somebody removed the hidden folder, until it is made anew."""
        self._files_moved = False
        """Whether files were moved away, and the hidden folder, maybe, with them."""
        self._taking = threading.Lock()
        self._waiting: list[Job] = []
        self._turns: set[asyncio.AbstractEventLoop] = set()
        """Loops that will wake the thread at their next turn."""
        self._asleep = threading.Lock()
        self._asleep.acquire()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="nemo-gym-capture", daemon=True)
        self._thread.start()

    def put(self, job: Job) -> bool:
        """Hand over a job; False: the writer is closed and did not take it. Does not wait."""
        with self._taking:
            if self._closed:
                return False
            self._waiting.append(job)
        if job.row is not None or job.call is not None:
            capture_submitted()
        self._wake()
        return True

    def put_in_turn(self, job: Job, loop: asyncio.AbstractEventLoop) -> bool:
        """Do as `put`, from within `loop`: what one turn of it hands over is one batch.

        Woken for each row, the thread would fight the loop for the interpreter within its turn.
        """
        with self._taking:
            if self._closed:
                return False
            self._waiting.append(job)
            is_first = loop not in self._turns
            if is_first:
                self._turns.add(loop)
        capture_submitted()
        if is_first:
            loop.call_soon(self._end_turn, loop)
        return True

    def _end_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._taking:
            self._turns.discard(loop)
        self._wake()

    def _wake(self) -> None:
        if self._asleep.locked():
            with suppress(RuntimeError):  # somebody else has just done it
                self._asleep.release()

    def close(self) -> None:
        """Finish what was handed over, then sync the capture files and remove the log."""
        with self._taking:
            self._closed = True
        self._wake()
        self._thread.join()
        self._parts.files.close()
        if self._log is not None:
            self._log.close()

    def forget(self) -> None:
        """In a forked child: close the copies of the parent's descriptors."""
        self._parts.files.close()
        if self._log is not None:
            self._log.forget()

    def _run(self) -> None:
        going = True
        while going:
            batch, going = self._next_batch()
            batch.reverse()
            while True:
                self._settle(self._done(batch))
                if not batch:
                    break

    def _done(self, waiting: list[Job]) -> list[Ended]:
        """Do jobs from the end of `waiting`, and take them off: all, unless their rows are long.

        One row may have hundreds of megabytes; many of them are not held at once.
        """
        batch: list[Job] = []
        try:
            return self._do(batch, waiting)
        except Exception as error:  # the wall between capture and calls
            logger.exception("capture: a batch of %d failed", len(batch))
            return [(job, error) for job in batch]

    def _next_batch(self) -> tuple[list[Job], bool]:
        """Wait for a job, take all that came with it; False: no more is to come."""
        self._asleep.acquire()
        with self._taking:
            batch, self._waiting = self._waiting, []
            return batch, not self._closed

    def _do(self, batch: list[Job], waiting: list[Job]) -> list[Ended]:
        began = time.perf_counter()
        rows: list[Row] = []
        ended: list[Ended] = []
        append = self._parts.files.append
        error: Exception | None
        # All rows are made before the first is written: the same code many times over is fast.
        for job, error in _make_rows(batch, waiting):
            row = job.row
            if row is not None:
                if b"\n" in row.line:
                    row = job.row = row._replace(line=row.line.replace(b"\n", b" "))
                try:
                    if not rows:
                        self._files_moved |= self._parts.files.let_go_of_moved(row.rollout_id)
                    append(row.rollout_id, row.line)
                    rows.append(row)
                except OSError as failure:
                    error = failure  # noqa: PLW2901 - what went wrong with this job so far
            ended.append((job, error))
        if rows:
            error = self._make_durable(rows)
            if error is not None:
                return [(job, before or error) for job, before in ended]
            size = sum([len(row.line) for row in rows])
            capture_committed(len(rows), size, time.perf_counter() - began)
        return ended

    def _make_durable(self, rows: list[Row]) -> OSError | None:
        sync = sync_each_file
        try:
            log = self._usable_log()
            if log is not None:
                sync = sync_files
                log.commit(rows)
                return None
        except OSError as error:
            logger.warning("capture: the commit log failed, files are synced instead: %r", error)
        parts = self._parts
        try:
            paths = parts.files.paths(row.rollout_id for row in rows)
            sync(parts.disk, parts.layout.directory, paths)
        except OSError as error:
            return error
        return None

    def _usable_log(self) -> CommitLog | None:
        """Return the log, if there is one here; all is made anew that somebody removed."""
        parts, log = self._parts, self._log
        gone = parts.claims.are_gone() if log is None else log.is_gone()
        if self._files_moved:
            gone = gone or not parts.claims.are_in_place()
            self._files_moved = False
        if self._prepared and gone:
            logger.warning("capture: %s is gone; it is made anew", parts.layout.hidden)
            self._prepared, self._log = False, None
            if log is not None:
                log.forget()
        if not self._prepared:
            parts.claims.reopen()
            self._log = parts.prepare()
            self._prepared = True
        return self._log

    def _settle(self, ended: list[Ended]) -> None:
        """Mark what is missing, let go of the claims, then let the callers go on."""
        for rollout_id in self._parts.claims.lost():
            if not self._mark(rollout_id, "a model call was lost"):
                break
        for job, error in ended:
            if error is not None and (job.row is not None or job.call is not None):
                self._lose(job, error)
            elif job.rollout_id is not None:
                self._mark(job.rollout_id, job.reason)
        release_together([job.claim for job, _ in ended if job.claim is not None])
        end_jobs(ended)

    def _lose(self, job: Job, error: Exception) -> None:
        """Tell that a call has no row."""
        capture_failed(_reason_code(error))
        rollout_id = job.lost()
        if rollout_id is None:
            return
        if job.row is not None:
            logger.error("capture: a model call of rollout %s is lost: %r", rollout_id, error)
            self._mark(rollout_id, f"{job.row.model_call_id}: {error}")
        else:
            logger.error("capture: a call of rollout %s is lost", rollout_id, exc_info=error)
            # No more than the kind of error: its text may hold a piece of the call.
            self._mark(rollout_id, type(error).__name__)

    def _mark(self, rollout_id: RolloutId, reason: str) -> bool:
        """Write down that a rollout lacks a row; where that cannot be done its claim says so."""
        parts = self._parts
        try:
            write_mark(parts.layout, parts.disk, rollout_id, reason)
        except Exception as error:  # noqa: BLE001 - the wall between capture and calls
            logger.warning("capture: rollout %s cannot be marked: %r", rollout_id, error)
            parts.claims.hold_lost(rollout_id)
            return False
        parts.claims.drop_lost(rollout_id)
        return True


def _make_rows(batch: list[Job], waiting: list[Job]) -> list[Ended]:
    """Make rows from the end of `waiting` until they are long together, and say what went wrong."""
    made: list[Ended] = []
    size = 0
    while waiting and size < _LONG:
        job = waiting.pop()
        batch.append(job)
        made.append((job, _make_row(job)))
        if job.row is not None:
            size += len(job.row.line)
    return made


def _make_row(job: Job) -> Exception | None:
    """Make the row of a job that comes with a call; return what went wrong."""
    if job.call is not None:
        made = row_of(job.call)
        if isinstance(made, Exception):
            return made
        job.row = made
    return None


def _reason_code(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return errno.errorcode.get(error.errno, str(error.errno))
    return type(error).__name__
