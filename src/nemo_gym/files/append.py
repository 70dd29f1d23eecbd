"""One line onto the end of a file that others append to, whole or not at all.

A line in. Under an exclusive lock: look at the tail, write once, cut back what a
failed write left. A torn line that a killed process left is closed off first, so it costs itself
and nothing after it.
"""

import errno

from nemo_gym.files.disk import Disk

__all__ = ["FileUnlinked", "append_line", "read_locked"]


class FileUnlinked(OSError):
    """Somebody removed the file's last name: nobody would find what is written to it."""


def append_line(disk: Disk, fd: int, line: bytes, *, lock: bool = True) -> bool:
    r"""Append `line`, which has no `\n`, and its end to a file opened for appending.

    Says whether the file ended inside a line, which has its end now. Raises `OSError` with the
    file as it was before. `lock=False` is for a file that only this writer has.
    """
    if lock:
        disk.locks.lock_exclusive(fd)
    try:
        size, links, last = disk.tail(fd)
        if links == 0:
            raise FileUnlinked(errno.ESTALE, "somebody removed the file")
        # Also where the last line was one's own: cleared and torn it may have its size again.
        torn = size > 0 and last != b"\n"
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
        return torn
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
