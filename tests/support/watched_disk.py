"""A disk that sees what its users do: under which lock, with what left open, and after a failure.

It may fail once, at an operation that is given by its number.
"""

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from nemo_gym.files.disk import Disk, FileState
from nemo_gym.files.locks import FileLocks

__all__ = ["WatchedDisk"]

_LOCKED = (".capture.jsonl", "tombstones.jsonl")


class WatchedDisk(Disk):
    """Does as a real disk; `local` says of which kind, `locks` may be replaced."""

    def __init__(self, *, local: bool = True, fail_at: int = 0) -> None:
        self.local = local
        self.fail_at = fail_at
        self.operations = 0
        self.opened: dict[int, Path] = {}
        """What is open now."""
        self.accesses = 0
        """How often a file was read or changed that others may write to."""
        self.unlocked: list[str] = []
        """Those of them that others could have come into."""
        self._mutex = threading.RLock()

    def is_local(self, path: Path) -> bool:
        return self.local

    def open_append(self, path: Path) -> int:
        return self._opened(super().open_append(self._named(path)), path)

    def open_read_write(self, path: Path) -> int:
        return self._opened(super().open_read_write(self._named(path)), path)

    def open_existing(self, path: Path) -> int:
        return self._opened(super().open_existing(self._named(path)), path)

    def open_read(self, path: Path) -> int:
        return self._opened(super().open_read(self._named(path)), path)

    def close(self, fd: int) -> None:
        with self._mutex:
            del self.opened[fd]
            super().close(fd)

    def state(self, fd: int) -> FileState:
        self._tick()
        return super().state(fd)

    def write(self, fd: int, *parts: bytes) -> int:
        self._look(fd, "write", alone=True)
        return super().write(fd, *parts)

    def write_at(self, fd: int, data: bytes, offset: int) -> int:
        self._tick()
        return super().write_at(fd, data, offset)

    def write_parts_at(self, fd: int, parts: Sequence[bytes], offset: int) -> int:
        self._tick()
        return super().write_parts_at(fd, parts, offset)

    def read_at(self, fd: int, length: int, offset: int) -> bytes:
        self._look(fd, "read", alone=False)
        return super().read_at(fd, length, offset)

    def truncate(self, fd: int, size: int) -> None:
        self._look(fd, "truncate", alone=True)
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        self._tick()
        super().sync(fd)

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(self._named(path))

    def sync_file_system(self, path: Path) -> None:
        super().sync_file_system(self._named(path))

    def make_directory(self, path: Path) -> None:
        super().make_directory(self._named(path))

    def unlink(self, path: Path) -> None:
        super().unlink(self._named(path))

    def _named(self, path: Path) -> Path:
        self._tick()
        return path

    def _opened(self, fd: int, path: Path) -> int:
        with self._mutex:
            self.opened[fd] = path
            return fd

    def _tick(self) -> None:
        with self._mutex:
            self.operations += 1
            if self.operations == self.fail_at:
                raise OSError(errno.EIO, "Input/output error")

    def _look(self, fd: int, what: str, *, alone: bool) -> None:
        self._tick()
        path = self.opened[fd]
        if path.name.endswith(_LOCKED):
            self.accesses += 1
            if not _is_locked(fd, alone=alone):
                self.unlocked.append(f"{what} {path.name}")


def _is_locked(fd: int, *, alone: bool) -> bool:
    """Say whether somebody holds an open file, `alone` or with other readers."""
    locks, other = FileLocks(), os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    try:
        if not alone:
            return locks.is_held(other)
        locks.hold_range(other, 0)
    except OSError as error:
        return error.errno in {errno.EAGAIN, errno.EACCES}
    else:
        return False
    finally:
        os.close(other)
