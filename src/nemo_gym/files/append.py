"""One line onto the end of a file that others append to, whole or not at all.

A line in, its place out. Under an exclusive lock: look at the tail, write once, cut back what a
failed write left. A torn line that a killed process left is closed off first, so it costs itself
and nothing after it.
"""

import errno
from dataclasses import dataclass

from nemo_gym.files.disk import Disk

__all__ = ["Appended", "append_line", "read_locked"]


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a line went."""

    offset: int
    """First byte of the line in the file."""
    closed_torn_line: bool
    """The file ended inside a line, which now has its end."""


def append_line(disk: Disk, fd: int, line: bytes, *, lock: bool = True) -> Appended:
    r"""Append `line` (it ends in `\n`) to a file opened for appending.

    Raises `OSError` with the file as it was before; `lock=False` is for a file that only this
    writer has.
    """
    if not lock:
        return _append(disk, fd, line)
    disk.locks.lock_exclusive(fd)
    try:
        return _append(disk, fd, line)
    finally:
        disk.locks.unlock(fd)


def _append(disk: Disk, fd: int, line: bytes) -> Appended:
    size = disk.state(fd).size
    torn = size > 0 and disk.read_at(fd, 1, size - 1) != b"\n"
    data = b"\n" + line if torn else line
    try:
        written = disk.write(fd, data)
    except OSError:
        _cut_back(disk, fd, size)
        raise
    if written != len(data):
        _cut_back(disk, fd, size)
        raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes could be written")
    return Appended(size + torn, torn)


def _cut_back(disk: Disk, fd: int, size: int) -> None:
    if disk.state(fd).size > size:
        disk.truncate(fd, size)


def read_locked(disk: Disk, fd: int, *, offset: int = 0, lock: bool = True) -> bytes:
    """Read an open file from `offset` to its end while nobody is writing."""
    if not lock:
        return disk.read_at(fd, max(0, disk.state(fd).size - offset), offset)
    with disk.locks.shared(fd):
        return disk.read_at(fd, max(0, disk.state(fd).size - offset), offset)
