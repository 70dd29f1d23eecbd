"""New rows of a capture directory as they come, from all its files.

Files are looked at again and again; only what was added is read, and a row is handed out once its
line has its end. A file that was cleared, or made anew, is read from its start, however large it
has grown meanwhile.
"""

import heapq
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import NamedTuple

from nemo_gym.capture.reading import CaptureFile
from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.disk import REAL_DISK, Disk
from nemo_gym.ids import RolloutId
from nemo_gym.observability.facts import completed_at
from nemo_gym.observability.pieces import START, Place, last_lines, pieces_behind, reading

__all__ = ["Follower", "pause_after"]

_SHORTEST_S = 0.25
_WAITS = 9
"""As many times as long as it looks it waits: a tenth of a core, however many files there are."""
_SETTLED_NS = 2_000_000_000
"""Within a tick of its clock a file may change twice and tell one time; ticks of file servers are
a second at most."""
_OUT_OF_ORDER_S = 5.0
"""Rows of calls that end together come into their file in any order."""


def pause_after(cpu_s: float) -> float:
    """Return how long to wait, in seconds, after a look that took `cpu_s` of CPU time."""
    return max(_SHORTEST_S, _WAITS * cpu_s)


class _Version(NamedTuple):
    """What tells, without a look into it, that a file is as it was."""

    number: int
    size: int
    changed_ns: int


class _Found(NamedTuple):
    """A line that may be one of the last; the later one is the greater."""

    completed_at: float
    rollout_id: RolloutId
    offset: int
    path: Path
    place: Place


class Follower:
    """Remembers where it stands in each file."""

    def __init__(
        self,
        store: CaptureStore,
        *,
        disk: Disk = REAL_DISK,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store = store
        self._disk = disk
        self._clock_ns = clock_ns
        self._places: dict[Path, Place] = {}
        self._versions: dict[Path, _Version] = {}
        """Of the files in which nothing is left to read."""
        self._told: set[Path] = set()
        self.unreadable: dict[Path, str] = {}
        """Files that could not be read, and why."""

    def last_lines(self, count: int) -> Generator[tuple[RolloutId, bytes]]:
        """Yield the last lines there are, as their calls ended; those before are passed over."""
        last: list[_Found] = []
        for file in self._files():
            try:
                self._look_back(file, count, last)
            except OSError as error:
                self._failed(file.path, error)
        for found in sorted(last):
            line = self._line_again(found)
            if line is not None:
                yield found.rollout_id, line

    def new_lines(self) -> Generator[tuple[RolloutId, bytes]]:
        """Yield every whole line that was not there before, with the rollout it belongs to."""
        for file in self._files():
            looked_ns = self._clock_ns()
            version = _Version(file.number, file.size, file.changed_ns)
            if self._versions.get(file.path) == version:
                continue
            try:
                yield from self._lines_behind(file)
            except OSError as error:
                self._failed(file.path, error)
            else:
                if looked_ns - file.changed_ns > _SETTLED_NS:
                    self._versions[file.path] = version

    def newly_unreadable(self) -> dict[Path, str]:
        """Return the files that could not be read and were not returned before, and why."""
        found = {path: why for path, why in self.unreadable.items() if path not in self._told}
        self._told.update(found)
        return found

    def _files(self) -> Generator[CaptureFile]:
        for file in self._store.files():
            if file.problem is None:
                yield file
            else:
                self.unreadable[file.path] = file.problem

    def _failed(self, path: Path, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # moved away since it was listed
            self.unreadable[path] = error.strerror or str(error)

    def _look_back(self, file: CaptureFile, count: int, last: list[_Found]) -> None:
        """Stand at the end of a file; put those of its lines that are among the last in `last`."""
        with reading(file.path, self._disk) as fd:
            for number, (place, line) in enumerate(last_lines(self._disk, fd)):
                if number == 0:
                    self._places[file.path] = place
                if number >= count:
                    break
                if not line or line.isspace():
                    continue
                completed = completed_at(line)
                found = _Found(completed or 0.0, file.rollout_id, place.last, file.path, place)
                if len(last) < count:
                    heapq.heappush(last, found)
                    continue
                heapq.heappushpop(last, found)
                if completed is not None and completed < last[0].completed_at - _OUT_OF_ORDER_S:
                    break

    def _line_again(self, found: _Found) -> bytes | None:
        """Read a line once more: many long ones are not to be held. None: it was cleared."""
        length = found.place.offset - found.offset
        try:
            with reading(found.path, self._disk) as fd:
                line = self._disk.read_at(fd, length, found.offset)
        except OSError:
            return None
        is_it = line.startswith(found.place.head) and line.endswith(found.place.tail)
        return line[:-1] if is_it else None

    def _lines_behind(self, file: CaptureFile) -> Generator[tuple[RolloutId, bytes]]:
        with reading(file.path, self._disk) as fd:
            place = self._places.get(file.path, START)
            for piece in pieces_behind(self._disk, fd, place):
                self._places[file.path] = piece.place
                start = 0
                while start < piece.whole:
                    end = piece.data.index(b"\n", start)
                    line = piece.data[start:end]
                    if line and not line.isspace():
                        yield file.rollout_id, line
                    start = end + 1
