"""What a disk can do, in one place that a test can stand in for.

Paths and descriptors in, bytes and numbers out, `OSError` when it fails. Everything that must
survive a crash goes through a `Disk`, so that a full disk, a slow sync or a power cut is a value
handed in and not a patch.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from nemo_gym.files.libc import size_and_links_now, sync_file_system, tail_now, write_back
from nemo_gym.files.locks import FileLocks, QuickLocks
from nemo_gym.files.regular import open_regular
from nemo_gym.files.systems import is_local

__all__ = [
    "REAL_DISK",
    "Disk",
    "FileState",
    "LocalDisk",
    "disk_of",
    "make_durable_directory",
    "sync_name",
]

_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MOST_PARTS = os.sysconf("SC_IOV_MAX") if "SC_IOV_MAX" in os.sysconf_names else 16
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class FileState(NamedTuple):
    """What appending has to know of an open file."""

    size: int
    """In bytes."""
    links: int
    """0 once somebody unlinked it: what is written from then on nobody will find."""


class Disk:
    """The real disk. A subclass in a test may be slow, full, or forget what was not synced.

    What is opened is a regular file: a pipe, a socket, a device or a directory is an `OSError`.
    """

    locks: FileLocks = FileLocks()

    def is_local(self, path: Path) -> bool:
        """Say whether what one process writes under `path` every other sees at once."""
        return is_local(path)

    def page_cache_id(self) -> str | None:
        """Return what stays the same while nothing written can be forgotten: one boot.

        None where the system does not say.
        """
        try:
            return _BOOT_ID.read_text(encoding="ascii").strip() or None
        except OSError:
            return None

    def open_append(self, path: Path) -> int:
        """Open a file for reading and appending; it is made when it is not there."""
        return open_regular(path, _APPEND)

    def open_read_write(self, path: Path) -> int:
        """Open a file for writing at any place; it is made when it is not there."""
        return open_regular(path, os.O_RDWR | os.O_CREAT)

    def open_existing(self, path: Path) -> int:
        """Open a file that is there, for reading and writing at any place."""
        return open_regular(path, os.O_RDWR)

    def open_read(self, path: Path) -> int:
        """Open a file that is there."""
        return open_regular(path, os.O_RDONLY)

    def close(self, fd: int) -> None:
        """Close a descriptor; its locks go with it."""
        os.close(fd)

    def state(self, fd: int) -> FileState:
        """Return size and number of links of an open file."""
        status = os.fstat(fd)
        return FileState(status.st_size, status.st_nlink)

    def write(self, fd: int, *parts: bytes) -> int:
        """Write at the end of a file opened for appending; return how many bytes went in.

        Parts go in together, as one piece that no other writer comes into.
        """
        return os.writev(fd, parts)

    def write_at(self, fd: int, data: bytes, offset: int) -> int:
        """Write at `offset`; return how many bytes went in."""
        return os.pwrite(fd, data, offset)

    def write_parts_at(self, fd: int, parts: Sequence[bytes], offset: int) -> int:
        """Write parts one behind the other from `offset`; return how many bytes went in."""
        if len(parts) > _MOST_PARTS:
            parts = (b"".join(parts),)
        return os.pwritev(fd, parts, offset)

    def read_at(self, fd: int, length: int, offset: int) -> bytes:
        """Read up to `length` bytes from `offset`; fewer only at the end of the file."""
        parts: list[bytes] = []
        while length > 0 and (part := os.pread(fd, length, offset)):
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def is_at(self, fd: int, path: Path) -> bool:
        """Say whether an open file is the one that `path` names; raises `OSError`."""
        try:
            named = path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(fd))

    def tail(self, fd: int) -> tuple[int, int, bytes]:
        """Return size, links and last byte of an open file; no byte where it is empty."""
        size, links = self.state(fd)
        return size, links, self.read_at(fd, 1, size - 1) if size else b""

    def truncate(self, fd: int, size: int) -> None:
        """Cut an open file to `size` bytes."""
        os.ftruncate(fd, size)

    def free_bytes(self, path: Path) -> int:
        """Return how much a user may still write to the file system of `path`."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def sync(self, fd: int) -> None:
        """Return once the data of an open file, and its size, would survive a power cut."""
        getattr(os, "fdatasync", os.fsync)(fd)

    def write_back(self, fd: int) -> None:
        """Bring the data of an open file to the disk; a power cut may still take it.

        What is written bit by bit is never in the way of a sync of something else for long, as
        it is when one sync has all of it to write.
        """
        write_back(fd)

    def sync_directory(self, path: Path) -> None:
        """Return once the names in a directory would survive a power cut."""
        fd = os.open(path, _DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_file_system(self, path: Path) -> None:
        """Return once everything on the file system of a directory would survive a power cut.

        One journal commit however many files there are, so it is the way for more than a few.
        """
        fd = os.open(path, _DIRECTORY)
        try:
            sync_file_system(fd)
        finally:
            os.close(fd)

    def make_directory(self, path: Path) -> None:
        """Make a directory and those above it; one that is there is left as it is."""
        path.mkdir(parents=True, exist_ok=True)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory; raises `OSError` where something is in it."""
        path.rmdir()

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name, replacing what has it."""
        old.replace(new)

    def unlink(self, path: Path) -> None:
        """Remove a name; one that is not there is no error."""
        path.unlink(missing_ok=True)


class LocalDisk(Disk):
    """A disk that is known to be local: what it only looks up it tells without a wait.

    Other threads do not get to run while it does, see `QuickLocks`.
    """

    locks: FileLocks = QuickLocks()

    def state(self, fd: int) -> FileState:
        """Return size and number of links of an open file."""
        found = size_and_links_now(fd)
        return super().state(fd) if found is None else FileState(*found)

    def tail(self, fd: int) -> tuple[int, int, bytes]:
        """Return size, links and last byte of an open file; no byte where it is empty."""
        return tail_now(fd) or super().tail(fd)


REAL_DISK = Disk()
_LOCAL_DISK = LocalDisk()


def disk_of(path: Path) -> Disk:
    """Return the disk that a path, or the nearest parent that is there, lies on."""
    return _LOCAL_DISK if is_local(path) else REAL_DISK


def make_durable_directory(disk: Disk, path: Path) -> None:
    """Make a directory and those above it, each of which would survive a power cut."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    disk.make_directory(path)
    for each in missing:
        sync_name(disk, each)


def sync_name(disk: Disk, path: Path) -> None:
    """Return once the name of `path` would survive a power cut, where that can be asked for.

    The folder above may be one that this user may pass through and not read.
    """
    with suppress(PermissionError):
        disk.sync_directory(path.parent)
