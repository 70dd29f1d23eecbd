"""Disks with faults: one that forgets what was not synced, one that is slow, full, or lockless."""

import errno
import os
import random
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym.files.disk import Disk
from nemo_gym.files.locks import FileLocks

__all__ = [
    "DISKS",
    "FaultyDisk",
    "ForgetfulDisk",
    "LocklessDisk",
    "Snapshot",
    "network_disk",
]

_SECTOR = 512


@dataclass
class Snapshot:
    """What a power cut would leave, and what might have reached the disk besides."""

    synced_names: dict[Path, set[str]]
    synced_data: dict[tuple[Path, str], bytes]
    current: dict[Path, bytes]

    def restore(self, root: Path, target: Path, rng: random.Random | None) -> None:
        """Write the state under `root` to `target`: what was synced, and with `rng` more."""
        self._restore(root, target, rng)

    def _restore(self, source: Path, target: Path, rng: random.Random | None) -> None:
        target.mkdir(exist_ok=True)
        names = set(self.synced_names.get(source, set()))
        if rng is not None:
            now = {p.name for p in self.current if p.parent == source}
            names = {name for name in names | now if name in names & now or rng.random() < 0.5}
        for name in names:
            path = source / name
            if path in self.synced_names or self.current.get(path) == b"<dir>":
                self._restore(path, target / name, rng)
            else:
                (target / name).write_bytes(self._content(path, rng))

    def _content(self, path: Path, rng: random.Random | None) -> bytes:
        synced = self.synced_data.get((path.parent, path.name), b"")
        now = self.current.get(path, synced)
        if rng is None or now == synced:
            return synced
        if len(now) < len(synced):
            return rng.choice([now, synced])
        size = rng.randint(len(synced), len(now))
        # Sectors reach the disk in any order; behind the old end only in order of the size.
        return b"".join(
            # What an old sector never held reads as zeros.
            now[start:end]
            if start >= len(synced) or rng.random() < 0.5
            else synced[start:end].ljust(end - start, b"\0")
            for start in range(0, size, _SECTOR)
            for end in [min(start + _SECTOR, size)]
        )


class NoLocks(FileLocks):
    def lock_exclusive(self, fd: int) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    def lock_shared(self, fd: int) -> None:
        raise OSError(errno.ENOSYS, "no locks here")

    def try_exclusive(self, fd: int) -> bool:
        raise OSError(errno.ENOLCK, "no locks here")

    def unlock(self, fd: int) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    def hold_range(self, fd: int, start: int, length: int = 1) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    def is_held(self, fd: int, start: int = 0, length: int = 0) -> bool:
        raise OSError(errno.ENOLCK, "no locks here")

    def held_ranges(self, fd: int, start: int, length: int) -> Generator[range]:
        raise OSError(errno.ENOLCK, "no locks here")


@dataclass
class ForgetfulDisk(Disk):
    """A real disk that knows at every moment what a power cut would leave of it.

    `cut_at` counts operations; at that one `snapshot` is taken and `on_cut` called.
    """

    root: Path
    cut_at: int = -1
    operations: int = 0
    snapshot: Snapshot | None = None
    cut_seen: list[object] = field(default_factory=list)
    boot: str = "the boot before the cut"
    observe: Callable[[], object] = lambda: None
    local: bool = True
    """Whether it is known to be a local file system."""
    lockless: bool = False

    def __post_init__(self) -> None:
        if self.lockless:
            self.locks = NoLocks()
        self._mutex = threading.RLock()
        self._data: dict[tuple[Path, str], bytes] = {}
        self._names: dict[Path, set[str]] = {self.root: set()}

    def is_local(self, path: Path) -> bool:
        return self.local

    def page_cache_id(self) -> str | None:
        return self.boot

    def write(self, fd: int, *parts: bytes) -> int:
        self._tick()
        return super().write(fd, *parts)

    def write_at(self, fd: int, data: bytes, offset: int) -> int:
        self._tick()
        return super().write_at(fd, data, offset)

    def write_parts_at(self, fd: int, parts: Sequence[bytes], offset: int) -> int:
        self._tick()
        return super().write_parts_at(fd, parts, offset)

    def truncate(self, fd: int, size: int) -> None:
        self._tick()
        super().truncate(fd, size)

    def unlink(self, path: Path) -> None:
        self._tick()
        with self._mutex:  # not while `cut` looks
            super().unlink(path)

    def sync(self, fd: int) -> None:
        self._tick()
        with self._mutex:
            path = Path(f"/proc/self/fd/{fd}").readlink()
            self._data[path.parent, path.name] = path.read_bytes()
        self._tick()

    def sync_directory(self, path: Path) -> None:
        self._tick()
        with self._mutex:
            self._sync_names(path)
        self._tick()

    def sync_file_system(self, path: Path) -> None:
        self._tick()
        with self._mutex:
            for folder, _, files in os.walk(self.root):
                self._sync_names(Path(folder))
                for name in files:
                    self._data[Path(folder), name] = (Path(folder) / name).read_bytes()
        self._tick()

    def cut(self) -> Snapshot:
        """Return what a power cut at this moment would leave."""
        current: dict[Path, bytes] = {}
        with self._mutex:
            for folder, folders, files in os.walk(self.root):
                current |= {Path(folder) / name: b"<dir>" for name in folders}
                paths = [Path(folder) / name for name in files]
                current |= {path: path.read_bytes() for path in paths}
            names = {folder: set(names) for folder, names in self._names.items()}
            return Snapshot(names, dict(self._data), current)

    def _sync_names(self, folder: Path) -> None:
        if not folder.is_relative_to(self.root):
            return
        now = {path.name for path in folder.iterdir()}
        for gone in self._names.get(folder, set()) - now:
            self._data.pop((folder, gone), None)
        self._names[folder] = now

    def _tick(self) -> None:
        with self._mutex:
            self.operations += 1
            if self.operations == self.cut_at:
                self.cut_seen.append(self.observe())
                self.snapshot = self.cut()


class LocklessDisk(Disk):
    """A file system without advisory locks."""

    locks = NoLocks()


class FaultyDisk(Disk):
    """A disk that can be told to be full, slow or broken, while it is in use."""

    def __init__(self) -> None:
        self.sync_delay_s = 0.0
        self.room: int | None = None
        """Bytes that still fit; None: as many as there are."""
        self.error: OSError | None = None
        """Raised by every open of a file."""
        self.sync_error: OSError | None = None
        self.local = True
        self.refused = ""
        """A file of this name cannot be opened."""

    def is_local(self, path: Path) -> bool:
        return self.local

    def open_append(self, path: Path) -> int:
        if self.error is not None:
            raise self.error
        if path.name == self.refused:
            raise OSError(errno.EACCES, "Permission denied")
        return super().open_append(path)

    def write(self, fd: int, *parts: bytes) -> int:
        return super().write(fd, self._fitting(b"".join(parts)))

    def sync(self, fd: int) -> None:
        if self.sync_delay_s:
            time.sleep(self.sync_delay_s)
        if self.sync_error is not None:
            raise self.sync_error
        super().sync(fd)

    def _fitting(self, data: bytes) -> bytes:
        if self.room is None:
            return data
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        data = data[: self.room]
        self.room -= len(data)
        return data


def network_disk() -> FaultyDisk:
    """Return a disk with locks that is not known to be local."""
    disk = FaultyDisk()
    disk.local = False
    return disk


DISKS: dict[str, Callable[[], Disk]] = {
    "local": FaultyDisk,
    "network": network_disk,
    "lockless": LocklessDisk,
}
"""Each kind of disk that decides otherwise how rows are kept."""
