"""Locks on open files that other processes, and other descriptors of this one, can see.

Descriptors and byte ranges in, nothing or an answer out. Only open-file-description locks are
used: a POSIX record lock is blind inside its own process and is dropped when *any* descriptor of
the file is closed. An OFD lock goes with the last copy of its descriptor, so a killed process
leaves none behind. Where the system or the file system has none, every call raises `OSError`.
"""

import errno
import fcntl
import struct
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import cast

from nemo_gym.files.libc import control_now

__all__ = ["FileLocks", "QuickLocks", "says_no_locks"]

_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}

# struct flock of 64-bit Linux: l_type, l_whence, (padding), l_start, l_len, l_pid, (padding)
_FLOCK = struct.Struct("@hhqqi4x")
_SET = getattr(fcntl, "F_OFD_SETLK", None)
_SET_WAIT = getattr(fcntl, "F_OFD_SETLKW", None)
_GET = getattr(fcntl, "F_OFD_GETLK", None)
_TO_THE_END = 1 << 62
_EXCLUSIVE, _SHARED, _NONE = fcntl.F_WRLCK, fcntl.F_RDLCK, fcntl.F_UNLCK


def says_no_locks(error: OSError) -> bool:
    """Say whether an error of a lock call means that there are no locks here at all."""
    return error.errno in _NO_LOCKS


def _whole(kind: int) -> bytes:
    return _FLOCK.pack(kind, 0, 0, 0, 0)


_WHOLE_EXCLUSIVE, _WHOLE_SHARED, _WHOLE_NONE = _whole(_EXCLUSIVE), _whole(_SHARED), _whole(_NONE)


def _without_locks(fd: int, command: int | None, flock: bytes) -> bytes:  # pragma: no cover
    raise OSError(errno.ENOSYS, "this system has no open-file-description locks")


_call: Callable[[int, int | None, bytes], bytes] = (
    cast("Callable[[int, int | None, bytes], bytes]", fcntl.fcntl)
    if _SET is not None
    else _without_locks
)


class FileLocks:
    """The locks of the operating system; a test hands in others that fail."""

    def lock_exclusive(self, fd: int) -> None:
        """Wait until nobody else holds the file, then hold all of it (`fd` must be writable)."""
        _call(fd, _SET_WAIT, _WHOLE_EXCLUSIVE)

    def lock_shared(self, fd: int) -> None:
        """Wait until nobody holds the file exclusively, then hold it with other readers."""
        _call(fd, _SET_WAIT, _WHOLE_SHARED)

    def unlock(self, fd: int) -> None:
        """Let go of every range that this descriptor holds."""
        self._set(fd, _WHOLE_NONE)

    @contextmanager
    def exclusive(self, fd: int) -> Generator[None]:
        """Hold the whole file exclusively."""
        self.lock_exclusive(fd)
        try:
            yield
        finally:
            self.unlock(fd)

    @contextmanager
    def shared(self, fd: int) -> Generator[None]:
        """Hold the whole file together with other readers."""
        self.lock_shared(fd)
        try:
            yield
        finally:
            self.unlock(fd)

    def try_exclusive(self, fd: int) -> bool:
        """Hold the whole file exclusively if nobody holds it; say whether that was so."""
        try:
            self._set(fd, _WHOLE_EXCLUSIVE)
        except OSError as error:
            if error.errno in {errno.EAGAIN, errno.EACCES}:
                return False
            raise
        return True

    def hold_range(self, fd: int, start: int, length: int = 1) -> None:
        """Hold `length` bytes from `start` together with others (`fd` must be readable)."""
        self._set(fd, _FLOCK.pack(_SHARED, 0, start, length, 0))

    def drop_range(self, fd: int, start: int, length: int = 1) -> None:
        """Let go of `length` bytes from `start`."""
        self._set(fd, _FLOCK.pack(_NONE, 0, start, length, 0))

    def is_held(self, fd: int, start: int = 0, length: int = 0) -> bool:
        """Say whether any *other* descriptor, here or elsewhere, holds a byte of the range."""
        return self._held(fd, start, length) is not None

    def held_ranges(self, fd: int, start: int, length: int) -> Generator[range]:
        """Yield the bytes of a range that other descriptors hold, in no order, none twice."""
        left = [range(start, start + length)]
        while left:
            looked_at = left.pop()
            # Of several that are held the system names any.
            found = self._held(fd, looked_at.start, len(looked_at)) if looked_at else None
            if found is not None:
                yield range(max(found.start, looked_at.start), min(found.stop, looked_at.stop))
                left.append(range(looked_at.start, found.start))
                left.append(range(found.stop, looked_at.stop))

    def _set(self, fd: int, flock: bytes) -> None:
        """Take or drop a lock at once, or raise `OSError`."""
        _call(fd, _SET, flock)

    def _held(self, fd: int, start: int, length: int) -> range | None:
        """Return the bytes that one other holder of the range holds; `length` 0: to the end."""
        answer = _call(fd, _GET, _FLOCK.pack(_EXCLUSIVE, 0, start, length, 0))
        kind, _, first, size, _ = _FLOCK.unpack(answer)
        return None if kind == _NONE else range(first, first + (size or _TO_THE_END))


class QuickLocks(FileLocks):
    """The same for files of a local file system, which answers in less than a microsecond.

    Another thread does not get to run meanwhile. One that wants to would get the interpreter, and
    whoever locks a file for each row would stand in line for it again twice a row.
    """

    def lock_exclusive(self, fd: int) -> None:
        """Wait until nobody else holds the file, then hold all of it (`fd` must be writable)."""
        if _SET is None or not control_now(fd, _SET, _WHOLE_EXCLUSIVE):
            super().lock_exclusive(fd)

    def unlock(self, fd: int) -> None:
        """Let go of every range that this descriptor holds."""
        if _SET is None or not control_now(fd, _SET, _WHOLE_NONE):
            super().unlock(fd)

    def _set(self, fd: int, flock: bytes) -> None:
        if _SET is None or not control_now(fd, _SET, flock):
            super()._set(fd, flock)
