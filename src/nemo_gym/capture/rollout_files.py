"""The capture files that a process appends to: a row in, its line on the end of the right file.

Keeps a bounded number of descriptors. A file that somebody removed is made anew, and so is a
directory. What is appended is visible to every reader at once and durable after `sync`.
"""

import errno
import logging
import resource
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nemo_gym.capture.layout import Layout
from nemo_gym.files.append import FileUnlinked, append_line
from nemo_gym.files.disk import Disk, make_durable_directory
from nemo_gym.files.forks import OPENING
from nemo_gym.ids import RolloutId

__all__ = ["RolloutFiles", "kept_open", "sync_each_file", "sync_files"]

logger = logging.getLogger(__name__)

_MOST_KEPT_OPEN = 4096
# Above this one sync of the file system costs less than one of each file.
_FEW = 32
_AT_A_TIME = 16


@dataclass(slots=True)
class _Handle:
    path: Path
    fd: int
    used: int = 0
    """Number of the append that used it last."""


def kept_open(limit: int) -> int:
    """Return how many files are kept open where a process may open `limit`.

    As many as there are rollouts under way, as a rule, and never most of what may be opened:
    connections have a better use for it.
    """
    if limit == resource.RLIM_INFINITY:
        return _MOST_KEPT_OPEN
    return max(1, min(_MOST_KEPT_OPEN, limit // 4))


class RolloutFiles:
    """Used by the writer's thread only. `own` is this writer's name where locks do not work."""

    def __init__(self, layout: Layout, disk: Disk, own: str | None = None) -> None:
        self._layout = layout
        self._disk = disk
        self._own = own
        self._shared = own is None
        self._handles: dict[RolloutId, _Handle] = {}
        self._appends = 0
        self._keeps_open = kept_open(resource.getrlimit(resource.RLIMIT_NOFILE)[0])

    def let_go_of_moved(self, rollout_id: RolloutId) -> bool:
        """Let go of every open file that was moved away, if that of this rollout was; say whether.

        For the first row of a batch: to ask for each row would double what looking at a file costs.
        A row that still goes to the moved file stays there whole. Of a rollout that has no open
        file any other's tells whether the directory is another one now. Never raises.
        """
        handle = self._handles.get(rollout_id) or next(iter(self._handles.values()), None)
        if handle is None or self._is_in_place(handle):
            return False
        for other_id, other in list(self._handles.items()):
            if not self._is_in_place(other):
                logger.warning(
                    "capture: %s was moved away while in use; it is made anew", other.path
                )
                self._drop(other_id)
        return True

    def _is_in_place(self, handle: _Handle) -> bool:
        """Say so, too, of a file that was removed: whoever appends to it finds out."""
        try:
            disk, fd = self._disk, handle.fd
            return disk.is_at(fd, handle.path) or not disk.state(fd).links
        except OSError:
            return True

    def append(self, rollout_id: RolloutId, line: bytes) -> None:
        r"""Append one line, which has no `\n`, and its end to the file. Raises `OSError`."""
        handle = self._handles.get(rollout_id) or self._opened(rollout_id)
        self._appends += 1
        handle.used = self._appends
        try:
            torn = append_line(self._disk, handle.fd, line, lock=self._shared)
        except FileUnlinked:
            logger.warning("capture: %s was removed while in use; it is made anew", handle.path)
            self._drop(rollout_id)
            handle = self._opened(rollout_id)
            torn = append_line(self._disk, handle.fd, line, lock=self._shared)
        if torn:
            logger.warning("capture: closed off a torn line in %s", handle.path)

    def paths(self, rollout_ids: Iterable[RolloutId]) -> set[Path]:
        """Return the files that rows of these rollouts go to."""
        return {self._layout.capture_file(rollout_id, self._own) for rollout_id in rollout_ids}

    def close(self) -> None:
        """Close every descriptor."""
        for rollout_id in list(self._handles):
            self._drop(rollout_id)

    def _opened(self, rollout_id: RolloutId) -> _Handle:
        if len(self._handles) >= self._keeps_open:
            self._drop_half()
        path = self._layout.capture_file(rollout_id, self._own)
        with OPENING:
            handle = self._handles[rollout_id] = _Handle(path, self._open(path))
        return handle

    def _drop_half(self) -> None:
        """Close those that were not used for longest."""
        oldest = sorted(self._handles, key=lambda rollout_id: self._handles[rollout_id].used)
        for rollout_id in oldest[: (len(oldest) + 1) // 2]:
            self._drop(rollout_id)

    def _open(self, path: Path) -> int:
        try:
            return self._disk.open_append(path)
        except FileNotFoundError:
            make_durable_directory(self._disk, path.parent)
            return self._disk.open_append(path)
        except OSError as error:
            if error.errno not in {errno.EMFILE, errno.ENFILE} or not self._handles:
                raise
            # The process is out of descriptors: what is only kept open for speed gives way.
            self.close()
            return self._disk.open_append(path)

    def _drop(self, rollout_id: RolloutId) -> None:
        self._disk.close(self._handles.pop(rollout_id).fd)


def sync_files(
    disk: Disk, directory: Path, paths: Collection[Path], *, one_by_one: bool = False
) -> None:
    """Return once the given files, and their names, would survive a power cut.

    A file that somebody removed is left out. `one_by_one`: whatever else is to be synced meanwhile
    never waits behind more than one of them, which costs more CPU. Raises `OSError`.
    """
    if len(paths) > _FEW:
        for path in paths if one_by_one else ():
            _do(disk.write_back, disk, path)
        disk.sync_file_system(directory)
        return
    for path in paths:
        _do(disk.sync, disk, path)
    disk.sync_directory(directory)


def sync_each_file(disk: Disk, directory: Path, paths: Collection[Path]) -> None:
    """Do as `sync_files`, each file by itself, many at a time: for disks behind a network."""
    sync = partial(_do, disk.sync, disk)
    if len(paths) == 1:
        sync(*paths)
    else:
        try:
            with ThreadPoolExecutor(min(_AT_A_TIME, len(paths))) as pool:
                list(pool.map(sync, paths))
        except RuntimeError:
            # The interpreter is ending and starts no more threads.
            for path in paths:
                sync(path)
    disk.sync_directory(directory)


def _do(what: Callable[[int], None], disk: Disk, path: Path) -> None:
    """Do something with an open file, if it is there."""
    try:
        fd = disk.open_read(path)
    except FileNotFoundError:
        return
    try:
        what(fd)
    finally:
        disk.close(fd)
