"""Files that a live run holds: a second run that needs the same is refused, naming the first.

A lease is a small JSON file, locked for as long as its run lives; a killed process leaves the file
but not the lock, so what it held is free at once.
"""

import contextlib
import os
import platform
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

import orjson

from nemo_gym.errors import RunConflict
from nemo_gym.files.disk import REAL_DISK, Disk
from nemo_gym.files.locks import says_no_locks
from nemo_gym.rollouts.unusable import output_unusable

__all__ = ["CaptureIds", "FileLease", "Holder", "hold_capture_ids", "hold_output"]

_HIDDEN = ".nemo_gym"
_TRIES = 100
"""How often a directory is made again that another run has just removed."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The run that holds something."""

    output: str
    started_at: str
    pid: int
    host: str

    @classmethod
    def here(cls, output: Path, started_at: str) -> "Holder":
        """Return this process as a holder."""
        return cls(str(output), started_at, os.getpid(), platform.node())


@dataclass(frozen=True, slots=True)
class CaptureIds:
    """Which capture ids a run may write."""

    tasks: tuple[int, int] | None
    """Lowest and highest task index of the ids that are made of indices; None without any."""
    explicit: frozenset[str]
    """The rows' own ids."""

    def overlaps(self, other: "CaptureIds") -> bool:
        """Say whether a capture of one could be taken for one of the other."""
        if self.tasks is not None and other.tasks is not None:
            (low, high), (other_low, other_high) = self.tasks, other.tasks
            if low <= other_high and other_low <= high:
                return True
        return not self.explicit.isdisjoint(other.explicit)


class FileLease:
    """A file held while its run lives; `close` removes it, and of `made` what is empty then.

    `made`: directories that were made for it, the deepest first.
    """

    def __init__(
        self,
        path: Path,
        fd: int,
        content: Mapping[str, object],
        disk: Disk = REAL_DISK,
        made: Sequence[Path] = (),
    ) -> None:
        self.path = path
        self._disk = disk
        self._fd = fd
        self._made = made
        try:
            disk.truncate(self._fd, 0)
            disk.write_at(self._fd, orjson.dumps(content), 0)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go; doing so twice is no error."""
        if self._fd >= 0:
            self._disk.unlink(self.path)
            self._disk.close(self._fd)
            self._fd = -1
            _remove_empty(self._made, self._disk)

    def __enter__(self) -> "FileLease":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class _Taken:
    """The outcome of trying to hold a file."""

    fd: int
    """A descriptor that holds it; -1 when somebody else does."""
    content: Mapping[str, object]
    """What the one who holds it wrote there."""


def _take(path: Path, disk: Disk) -> _Taken:
    """Hold `path` if nobody does; raises `OSError`."""
    while True:
        fd = disk.open_read_write(path)
        try:
            held = _lock(fd, disk)
            # Whoever let go meanwhile removed the name: then this is a file nobody will find.
            found = disk.state(fd).links > 0
            content = {} if held else _content(fd, disk)
        except BaseException:
            disk.close(fd)
            raise
        if held and found:
            return _Taken(fd, content)
        disk.close(fd)
        if not held:
            return _Taken(-1, content)


def _take_in_directory(path: Path, disk: Disk) -> tuple[_Taken, Sequence[Path]]:
    """Hold `path`, making its directory; return the directories made as well, the deepest first."""
    folder = path.parent
    for tries_left in reversed(range(_TRIES)):
        made = [each for each in (folder, *folder.parents) if not each.exists()]
        try:
            disk.make_directory(folder)
            return _take(path, disk), made
        except FileNotFoundError:
            # A run that made the directory too, and was refused, has just removed it again. But
            # there are folders in which nothing can be made, and they say the same: those of /proc.
            if folder.exists() or not tries_left:
                raise
        except BaseException:
            _remove_empty(made, disk)
            raise
    raise AssertionError  # pragma: no cover - the last try returns or raises


def _remove_empty(made: Sequence[Path], disk: Disk) -> None:
    with contextlib.suppress(OSError):
        for folder in made:
            disk.remove_directory(folder)


def _lock(fd: int, disk: Disk) -> bool:
    try:
        return disk.locks.try_exclusive(fd)
    except OSError as error:
        if says_no_locks(error):
            return True  # nothing can be held here, so nothing is refused
        raise


def _content(fd: int, disk: Disk) -> Mapping[str, object]:
    try:
        value = orjson.loads(disk.read_at(fd, disk.state(fd).size, 0))
    except orjson.JSONDecodeError:  # taken just now, not written yet
        return {}
    return value if isinstance(value, dict) else {}


def hold_output(lock: Path, holder: Holder, *, disk: Disk = REAL_DISK) -> FileLease:
    """Hold a run's files; raises `RunConflict`, or `OutputUnusable` when nothing can be made."""
    try:
        taken, made = _take_in_directory(lock, disk)
        if taken.fd >= 0:
            return FileLease(lock, taken.fd, asdict(holder), disk, made)
    except OSError as error:
        mend = "give --output a path in a directory that can be written"
        raise output_unusable("the output cannot be written", error, lock, mend) from error
    raise RunConflict(
        f"another run writes to {holder.output} ({_process(taken.content)})",
        where=str(lock),
        mend="wait for it, stop it, or give another --output",
    )


def hold_capture_ids(
    capture_dir: Path, ids: CaptureIds, holder: Holder, *, disk: Disk = REAL_DISK
) -> FileLease | None:
    """Hold the capture ids of a run in a capture directory; None where nothing can be made there.

    Raises `RunConflict` when a live run in that directory may write one of them.
    """
    folder = capture_dir / _HIDDEN / "runs"
    try:
        disk.make_directory(folder)
        guard = disk.open_read_write(folder / "guard.lock")
    except OSError:
        return None  # the servers say what is wrong with the directory
    try:
        _lock_waiting(guard, disk)
        for path in sorted(folder.glob("*.json")):
            _refuse_overlap(path, ids, capture_dir, disk)
        path = folder / f"{uuid.uuid4().hex}.json"
        content = {**asdict(holder), "tasks": ids.tasks, "explicit": sorted(ids.explicit)}
        return FileLease(path, _take(path, disk).fd, content, disk)
    finally:
        disk.close(guard)


def _lock_waiting(fd: int, disk: Disk) -> None:
    try:
        disk.locks.lock_exclusive(fd)
    except OSError as error:
        if not says_no_locks(error):
            raise


def _refuse_overlap(path: Path, ids: CaptureIds, capture_dir: Path, disk: Disk) -> None:
    """Raise when a live run holds an id of `ids`; a lease whose run is gone is removed."""
    taken = _take(path, disk)
    if taken.fd >= 0:
        disk.unlink(path)
        disk.close(taken.fd)
        return
    content = taken.content
    tasks, explicit = content.get("tasks"), content.get("explicit")
    theirs = CaptureIds(
        (tasks[0], tasks[1]) if isinstance(tasks, list) and len(tasks) == 2 else None,
        frozenset(map(str, explicit)) if isinstance(explicit, list) else frozenset(),
    )
    if theirs.overlaps(ids):
        raise RunConflict(
            f"another run captures model calls under the same rollout ids: {_named(content)}",
            where=str(capture_dir),
            mend="give this run a model_call_capture_dir of its own, or wait for the other",
        )


def _named(content: Mapping[str, object]) -> str:
    """Return a run by its output."""
    told = _process(content)
    return f"{content['output']} ({told})" if "output" in content else told


def _process(content: Mapping[str, object]) -> str:
    """Return a run by its process."""
    if "output" not in content:
        return "it is just starting"
    return "process {pid} on {host}, since {started_at}".format_map(content)
