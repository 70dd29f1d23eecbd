"""Captured model calls on disk: rows in, durable before their calls end; exchanges out.

One `CaptureStore` a directory and process. Reading needs nothing prepared; the first row, or
`open_for_writing`, starts the writer's thread. A store is dropped in forked children and closed
when the process ends.
"""

import asyncio
import atexit
import errno
import logging
import resource
import threading
import uuid
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from pathlib import Path

from nemo_gym.capture.claims import Claims, is_claimed, is_lost, look_at_claims
from nemo_gym.capture.clearing import clear_rollouts
from nemo_gym.capture.jobs import Job, end_jobs, release
from nemo_gym.capture.layout import Layout
from nemo_gym.capture.log import SEGMENT_BYTES
from nemo_gym.capture.marks import has_mark, read_mark
from nemo_gym.capture.opening import open_writer
from nemo_gym.capture.reading import (
    CaptureFile,
    StoredExchange,
    capture_file_at,
    capture_files,
    files_of_rollout,
    names_call,
    read_rollout,
)
from nemo_gym.capture.recovery import recover
from nemo_gym.capture.row import Claim, EndedCall, Row
from nemo_gym.capture.standing import Standing, look_at
from nemo_gym.capture.writer import Writer
from nemo_gym.errors import ConfigMistake
from nemo_gym.files.disk import Disk, disk_of
from nemo_gym.files.forks import forget_in_children
from nemo_gym.files.jsonl import Damaged
from nemo_gym.files.locks import says_no_locks
from nemo_gym.ids import RolloutId, parse_rollout_id

__all__ = ["CaptureStore"]

logger = logging.getLogger(__name__)
# Kept alive until closed: whoever drops a store still wants its rows.
_open_stores: "set[CaptureStore]" = set()


class CaptureStore:
    """The captured model calls of one directory.

    `disk` is what the files lie on, found out where it is not given; tests hand in others.
    `segment_bytes` is how much a file of the commit log holds; it takes two or three of them.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        disk: Disk | None = None,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._segment_bytes = segment_bytes
        self.layout = Layout(Path(directory).absolute())
        self._disk = disk or disk_of(self.layout.directory)
        self._mutex = threading.Lock()
        self._writer: Writer | None = None
        self._claims = Claims(self.layout, self._disk)
        self._recovered = False
        forget_in_children(self)

    @property
    def directory(self) -> Path:
        """Where the capture files lie."""
        return self.layout.directory

    def open_for_writing(self, *, setting: str = "model_call_capture_dir") -> None:
        """Start the writer; servers call it at start, so that a bad directory is known then.

        `setting` is what the directory was named by.
        Raises `ConfigMistake` when the directory cannot be created or written.
        """
        try:
            self._opened()
        except OSError as error:
            raise ConfigMistake(
                f"the capture directory {self.directory} cannot be written: {error}",
                where=setting,
                mend=_mend_of(error),
            ) from error

    def claim(self, rollout_id: RolloutId) -> Claim:
        """Say that a call of the rollout is under way, until the claim is released."""
        if self._writer is None:
            try:
                self._opened()
            except OSError as error:
                logger.error(  # noqa: TRY400 - the error is in the message
                    "capture: no claim for rollout %s: %r", rollout_id, error
                )
        return self._claims.take(rollout_id)

    def submit(self, row: Row, claim: Claim | None = None) -> "Future[None]":
        """Hand over a row; the future ends when it is durable, or with what went wrong."""
        future: Future[None] = Future()
        self._hand_over(Job(future, row=row, claim=claim))
        return future

    def keep(
        self, call: EndedCall, claim: Claim | None = None
    ) -> "asyncio.Future[Exception | None]":
        """Do as `submit` with the row of a call, and a future of the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Exception | None] = loop.create_future()
        job = Job(future, None, call, claim)
        writer = self._writer
        if writer is None or not writer.put_in_turn(job, loop):
            self._hand_over(job, loop)
        return future

    def mark_incomplete(
        self, rollout_id: RolloutId, reason: str, claim: Claim | None = None
    ) -> None:
        """Record that the rollout lacks a row; the claim is released once that is done."""
        self._hand_over(Job(Future(), rollout_id=rollout_id, reason=reason, claim=claim))

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every row handed over so far is durable or has failed."""
        if self._writer is not None:
            future: Future[None] = Future()
            self._hand_over(Job(future))
            future.result(timeout_s)

    def close(self) -> None:
        """Finish what was handed over and release everything; a store that was closed reopens."""
        with self._mutex:
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close()
                self._claims.close()
            _open_stores.discard(self)

    def read(self, rollout_id: str) -> list[StoredExchange | Damaged]:
        """Return the stored exchanges of a rollout in append order, damaged lines among them.

        A line that is still being written is left out. Raises `InvalidRolloutId`.
        """
        parsed = parse_rollout_id(rollout_id)
        self._recover_once()
        items = read_rollout(self.layout, self._disk, parsed)
        if any(isinstance(item, Damaged) and item.torn for item in items) and self.is_pending(
            parsed
        ):
            return [item for item in items if not (isinstance(item, Damaged) and item.torn)]
        return items

    def has_rollout(self, rollout_id: str) -> bool:
        """Say whether there is a capture file of the rollout, with rows or without."""
        self._recover_once()
        return bool(files_of_rollout(self.layout, parse_rollout_id(rollout_id)))

    def has_rows(self, rollout_id: str) -> bool:
        """Say whether the rollout has rows, or a file that cannot be one."""
        self._recover_once()
        found = map(capture_file_at, files_of_rollout(self.layout, parse_rollout_id(rollout_id)))
        return any(file is not None and not file.is_cleared for file in found)

    def has_row_named(self, rollout_id: str, is_named: Callable[[str], bool]) -> bool:
        """Say whether the rollout has a row by a `model_call_id` that `is_named`.

        Where it is the first one, that costs no more than its first bytes. Raises `OSError`.
        """
        paths = files_of_rollout(self.layout, parse_rollout_id(rollout_id))
        return any(names_call(self._disk, path, is_named) for path in paths)

    def files(self) -> Generator[CaptureFile]:
        """Yield every capture file, empty ones too, in no particular order."""
        self._recover_once()
        yield from capture_files(self.layout)

    def rollouts(self) -> list[RolloutId]:
        """Return the ids of the rollouts that have rows, or a file that cannot be one, sorted."""
        return sorted({file.rollout_id for file in self.files() if not file.is_cleared})

    def clear(self, rollout_ids: Iterable[str]) -> None:
        """Drop all rows and marks of these rollouts, for ever; files that are in use stay."""
        parsed = [parse_rollout_id(text) for text in rollout_ids]
        self._recover_once()
        clear_rollouts(self.layout, self._disk, parsed)
        for rollout_id in parsed:
            self._claims.drop_lost(rollout_id)

    def is_pending(self, rollout_id: str) -> bool:
        """Say whether any process has a call of the rollout under way."""
        return self._probe(is_claimed, rollout_id)

    def pending_count(self, beside: Iterable[str] = ()) -> int:
        """Return how many rollouts, `beside` these, have a call under way, with or without rows.

        0 where locks, which tell it, do not work.
        """
        named = list(map(parse_rollout_id, beside))
        try:
            return look_at_claims(self.layout, self._disk).claimed_beside(named)
        except OSError as error:
            if not says_no_locks(error):
                logger.warning("capture: the claims cannot be read: %r", error)
            return 0

    def is_incomplete(self, rollout_id: str) -> bool:
        """Say whether a row of the rollout is known to be missing."""
        parsed = parse_rollout_id(rollout_id)
        # In this order: a claim that says so is let go only once the mark is there.
        return self._probe(is_lost, parsed) or has_mark(self.layout, parsed)

    def standing(self) -> Standing:
        """Return which rollouts have calls under way or lack rows: one look for all of them."""
        return look_at(self.layout, self._disk)

    def why_incomplete(self, rollout_id: str) -> list[str]:
        """Return why rows of the rollout are missing, as far as that was written down."""
        try:
            return read_mark(self.layout, self._disk, parse_rollout_id(rollout_id))
        except OSError as error:
            return [f"the reason cannot be read: {error.strerror or error}"]

    def forget(self) -> None:
        """In a forked child: close the copies of the parent's descriptors; start from nothing."""
        self._mutex = threading.Lock()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.forget()
        self._claims.forget()
        _open_stores.discard(self)

    def _hand_over(self, job: Job, loop: asyncio.AbstractEventLoop | None = None) -> None:
        try:
            taken = False
            while not taken:
                # Closed by another server of this process at this moment, it opens itself again.
                writer = self._opened()
                taken = writer.put(job) if loop is None else writer.put_in_turn(job, loop)
        except OSError as error:
            lost = job.lost()
            logger.error(  # noqa: TRY400 - the error is in the message
                "capture: a call of rollout %s is lost: %r", lost, error
            )
            if lost is not None:
                self._claims.hold_lost(lost)
            release(job)
            end_jobs([(job, error)])

    def _opened(self) -> Writer:
        writer = self._writer
        if writer is not None:
            return writer
        self._recover_once()
        with self._mutex:
            if self._writer is None:
                name = uuid.uuid4().hex[:12]
                self._writer = open_writer(
                    self.layout, self._disk, self._claims, name, self._segment_bytes
                )
                _open_stores.add(self)
            return self._writer

    def _recover_once(self) -> None:
        with self._mutex:
            if not self._recovered:
                self._recovered = True
                recover(self.layout, self._disk)

    def _probe(self, held: Callable[[Layout, Disk, RolloutId], bool], rollout_id: str) -> bool:
        try:
            return held(self.layout, self._disk, parse_rollout_id(rollout_id))
        except OSError as error:
            if says_no_locks(error):
                return False
            # Not known: to say "nothing is coming" could lose a row.
            logger.warning("capture: the claims of %s cannot be read: %r", rollout_id, error)
            return True


def _mend_of(error: OSError) -> str:
    if error.errno == errno.EMFILE:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return (
            f"raise the limit of open files, which is {limit} here: 'ulimit -n 1024' before the "
            "start, or what sets it (LimitNOFILE of systemd, --ulimit nofile of docker)"
        )
    if error.errno == errno.ENFILE:
        return "the machine has too many files open: end some programs, or raise fs.file-max"
    return "name a directory that this user may create and write"


@atexit.register
def _close_stores() -> None:
    for store in list(_open_stores):
        store.close()
