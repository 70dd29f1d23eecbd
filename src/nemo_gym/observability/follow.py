"""New rows of a capture directory as they come, from all its files.

Files are looked at again and again; only what was added is read, and a row is handed out once its
line has its end.
"""

from collections.abc import Generator
from pathlib import Path

from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.disk import REAL_DISK, Disk
from nemo_gym.ids import RolloutId

__all__ = ["Follower", "pause_after"]

_SHORTEST_S = 0.25
_WAITS = 9
"""As many times as long as it looks it waits: a tenth of a core, however many files there are."""


def pause_after(cpu_s: float) -> float:
    """Return how long to wait, in seconds, after a look that took `cpu_s` of CPU time."""
    return max(_SHORTEST_S, _WAITS * cpu_s)


class Follower:
    """Remembers how far each file was read."""

    def __init__(
        self, store: CaptureStore, *, from_start: bool = False, disk: Disk = REAL_DISK
    ) -> None:
        self._store = store
        self._disk = disk
        self._read: dict[Path, int] = {}
        self._told: set[Path] = set()
        self.unreadable: dict[Path, str] = {}
        """Files that could not be read, and why."""
        if not from_start:
            self._read = {file.path: file.size for file in store.files()}

    def new_lines(self) -> Generator[tuple[RolloutId, bytes]]:
        """Yield every whole line since the last call, with the rollout it belongs to."""
        for file in self._store.files():
            if file.problem is not None:
                self.unreadable[file.path] = file.problem
                continue
            read = self._read.get(file.path, 0)
            if file.size < read:
                read = 0  # cleared since
            if file.size == read:
                continue
            try:
                with open(self._disk.open_read(file.path), "rb") as source:
                    source.seek(read)
                    data = source.read()
            except FileNotFoundError:  # moved away since it was listed
                continue
            except OSError as error:
                self.unreadable[file.path] = error.strerror or str(error)
                continue
            whole = data.rfind(b"\n") + 1
            self._read[file.path] = read + whole
            for line in data[:whole].split(b"\n"):
                if line.strip():
                    yield file.rollout_id, line

    def newly_unreadable(self) -> dict[Path, str]:
        """Return the files that could not be read and were not returned before, and why."""
        found = {path: why for path, why in self.unreadable.items() if path not in self._told}
        self._told.update(found)
        return found
