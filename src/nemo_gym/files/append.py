"""One line onto the end of a file that others append to, whole or not at all.

A line in, its place out. Under an exclusive lock: look at the tail, write once, cut back what a
failed write left. A torn line that a killed process left is closed off first, so it costs itself
and nothing after it.
"""

import errno
from typing import NamedTuple

from nemo_gym.files.disk import Disk

__all__ = ["Appended", "FileUnlinked", "append_line", "read_locked"]


class FileUnlinked(OSError):
    """Somebody removed the file's last name: nobody would find what is written to it."""


class Appended(NamedTuple):
    """Where a line went."""

    offset: int
    """First byte of the line in the file."""
    end: int
    """Size of the file now; a later append that finds it so need not look at the tail."""
    closed_torn_line: bool
    """The file ended inside a line, which now has its end."""


def append_line(
    disk: Disk, fd: int, line: bytes, *, lock: bool = True, known_end: int = 0
) -> Appended:
    r"""Append `line`, which has no `\n`, and its end to a file opened for appending.

    Raises `OSError` with the file as it was before. `lock=False` is for a file that only this
    writer has; `known_end` is where this writer's last line ended.
    """
    if lock:
        disk.locks.lock_exclusive(fd)
    try:
        size, links = disk.state(fd)
        if links == 0:
            raise FileUnlinked(errno.ESTALE, "somebody removed the file")
        torn = size not in (0, known_end) and disk.read_at(fd, 1, size - 1) != b"\n"
        length = torn + len(line) + 1
        try:
            # Not joined, which would copy the line.
            written = disk.write(fd, b"\n" if torn else b"", line, b"\n")
        except OSError:
            _cut_back(disk, fd, size)
            raise
        if written != length:
            _cut_back(disk, fd, size)
            raise OSError(errno.ENOSPC, f"only {written} of {length} bytes could be written")
        return Appended(size + torn, size + written, torn)
    finally:
        if lock:
            disk.locks.unlock(fd)


def _cut_back(disk: Disk, fd: int, size: int) -> None:
    if disk.state(fd).size > size:
        disk.truncate(fd, size)


def read_locked(disk: Disk, fd: int, *, lock: bool = True) -> bytes:
    """Read a whole open file while nobody is writing."""
    if not lock:
        return disk.read_at(fd, disk.state(fd).size, 0)
    with disk.locks.shared(fd):
        return disk.read_at(fd, disk.state(fd).size, 0)
