"""One process's commit log: rows that are in capture files go in, durable when `commit` returns.

Owns the segments: the one being written, those whose capture files are being synced by a thread
of its own, and a few to be written over. Its owner file is locked while the process lives, which
is how others know whose log may be replayed.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic

from nemo_gym.capture.layout import Layout
from nemo_gym.capture.log import (
    SEGMENT_BYTES,
    Segment,
    new_segment,
    renew_segment,
    trim_segment,
    write_records,
)
from nemo_gym.capture.rollout_files import sync_files
from nemo_gym.capture.row import Row
from nemo_gym.files.disk import Disk, sync_name
from nemo_gym.files.forks import OPENING
from nemo_gym.ids import RolloutId

__all__ = ["CommitLog"]

logger = logging.getLogger(__name__)

_SPARES = 2
_FIRST_IS_SMALLER = 16
_AT_LEISURE_S = 1.0
"""A segment that took this long to fill is not followed by the next at once."""


class CommitLog:
    """`commit` is for the writer's thread; `open`, `close` and `forget` come before and after."""

    def __init__(
        self,
        layout: Layout,
        disk: Disk,
        writer: str,
        segment_bytes: int = SEGMENT_BYTES,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._clock = clock
        self._began = clock()
        """When the current segment was begun."""
        self._segment_bytes = segment_bytes
        self._layout = layout
        self._disk = disk
        self._writer = writer
        self._owner = -1
        self._number = 0
        self._current: Segment | None = None
        self._broken: list[Segment] = []
        self._sealed: list[Segment] = []
        self._spare: list[Segment] = []
        self._mutex = threading.Lock()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._syncer: threading.Thread | None = None

    def open(self) -> None:
        """Lock the owner file and make the first segment. Raises `OSError`."""
        layout, disk = self._layout, self._disk
        try:
            self._lock_owner()
            disk.write_at(self._owner, (disk.page_cache_id() or "").encode(), 0)
            disk.sync(self._owner)
            # Small, so that a server starts at once; the next one is made beside the work.
            self._current = self._new_segment(self._segment_bytes // _FIRST_IS_SMALLER)
            for folder in (layout.hidden, layout.directory):
                disk.sync_directory(folder)
            sync_name(disk, layout.directory)
        except BaseException:
            # It is tried again with every call, and holds no row.
            for path in (*(s.path for s in self._all_segments()), layout.owner(self._writer)):
                with suppress(OSError):
                    disk.unlink(path)
            self.forget()
            raise

    def commit(self, rows: Sequence[Row]) -> int:
        """Make rows durable that are in their capture files; return the bytes. Raises `OSError`."""
        segment = self._writable()
        segment.touched.update([row.rollout_id for row in rows])
        size = write_records(self._disk, segment, rows)
        try:
            self._disk.sync(segment.fd)
        except OSError:
            # The kernel reports a failed write-back once: a later sync would prove nothing.
            self._give_up(segment)
            raise
        segment.position += size
        if segment.is_half_full and segment.generation == 1 and not self._spare:
            self._do_later(self._make_spare)
        return size

    def is_gone(self) -> bool:
        """Say whether somebody removed the log, so that what is synced nobody will find."""
        return self._owner >= 0 and self._disk.state(self._owner).links == 0

    def close(self) -> None:
        """Sync the capture files and remove the log; when that fails it stays for others."""
        if self._syncer is not None:
            self._jobs.put(None)
            self._syncer.join()
        segments = self._all_segments()
        try:
            touched = {rollout_id for segment in segments for rollout_id in segment.touched}
            if touched:
                self._sync(touched)
            for segment in segments:
                self._disk.unlink(segment.path)
            self._disk.unlink(self._layout.owner(self._writer))
        except OSError as error:
            logger.warning("capture: the log in %s is left: %r", self._layout.logs, error)
        self._close_all(segments)

    def forget(self) -> None:
        """In a forked child: close the copies of the parent's descriptors."""
        self._close_all(self._all_segments())

    def _lock_owner(self) -> None:
        disk, path = self._disk, self._layout.owner(self._writer)
        while True:
            with OPENING:
                self._owner = disk.open_read_write(path)
            disk.locks.lock_exclusive(self._owner)
            if disk.state(self._owner).links:
                return
            # An opener came in between, took the file for a dead one's and removed it.
            disk.close(self._owner)
            self._owner = -1

    def _give_up(self, segment: Segment) -> None:
        self._current = None
        if segment.position:
            self._broken.append(segment)
        else:
            self._disk.unlink(segment.path)
            self._disk.close(segment.fd)

    def _close_all(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self._disk.close(segment.fd)
        if self._owner >= 0:
            self._disk.close(self._owner)
        self._owner, self._current = -1, None
        self._broken, self._sealed, self._spare = [], [], []

    def _all_segments(self) -> list[Segment]:
        current = [] if self._current is None else [self._current]
        return current + self._broken + self._sealed + self._spare

    def _writable(self) -> Segment:
        segment = self._current
        if segment is not None and not segment.is_full:
            return segment
        if segment is not None:
            sealed, now = segment, self._clock()
            leisure = now - self._began >= _AT_LEISURE_S
            self._began = now
            with self._mutex:
                self._sealed.append(sealed)
            # First, since the sync may take longer than filling the segment that comes now.
            self._do_later(self._make_spare)
            self._do_later(lambda: self._recycle(sealed, leisure=leisure))
        self._current = None
        with self._mutex:
            segment = self._spare.pop() if self._spare else None
        if segment is None:
            segment = self._new_segment(self._segment_bytes, fill=False)
        else:
            renew_segment(segment, self._next_number())
        self._current = segment
        return segment

    def _new_segment(self, capacity: int, *, fill: bool = True) -> Segment:
        # Outside `OPENING`, since filling takes long: a child may keep a copy, it locks nothing.
        number = self._next_number()
        path = self._layout.segment(self._writer, number)
        return new_segment(self._disk, path, number, capacity, fill=fill)

    def _next_number(self) -> int:
        with self._mutex:
            self._number += 1
            return self._number

    def _do_later(self, job: Callable[[], None]) -> None:
        if self._syncer is None:
            name = "nemo-gym-capture-sync"
            self._syncer = threading.Thread(target=self._run_jobs, name=name, daemon=True)
            self._syncer.start()
        self._jobs.put(job)

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except OSError as error:
                logger.warning("capture: behind the log of %s: %r", self._layout.logs, error)

    def _recycle(self, segment: Segment, *, leisure: bool) -> None:
        """Sync what a sealed segment holds; then it may be written over, or goes."""
        self._sync(segment.touched, one_by_one=leisure)
        trim_segment(self._disk, segment)
        with self._mutex:
            self._sealed.remove(segment)
            keep = len(self._spare) < _SPARES and segment.capacity == self._segment_bytes
            if keep:
                self._spare.append(segment)
        if not keep:
            self._disk.unlink(segment.path)
            self._disk.close(segment.fd)

    def _sync(self, touched: Iterable[RolloutId], *, one_by_one: bool = False) -> None:
        files = [self._layout.capture_file(rollout_id) for rollout_id in touched]
        sync_files(self._disk, self._layout.directory, files, one_by_one=one_by_one)

    def _make_spare(self) -> None:
        with self._mutex:
            needed = not self._spare
        if needed:
            segment = self._new_segment(self._segment_bytes)
            with self._mutex:
                self._spare.append(segment)
