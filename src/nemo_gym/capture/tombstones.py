"""Rows that were cleared, so that replaying a commit log does not bring them back.

A row is known by its `model_call_id`, which is never used twice: no clock and no counter decides
what came before a clearing. A tombstone is needed only while some log may hold the row.
"""

import logging
from collections.abc import Collection
from types import TracebackType

import orjson

from nemo_gym.capture.layout import Layout
from nemo_gym.capture.reading import read_file
from nemo_gym.files.append import append_line
from nemo_gym.files.disk import Disk
from nemo_gym.files.jsonl import Damaged
from nemo_gym.files.locks import says_no_locks
from nemo_gym.ids import RolloutId
from nemo_gym.wire.json import as_array

__all__ = ["Tombstones", "forget_tombstones", "read_tombstones"]

logger = logging.getLogger(__name__)


class Tombstones:
    """Written by one clearing: `add` each rollout; all would survive a power cut at the end."""

    def __init__(self, layout: Layout, disk: Disk) -> None:
        self._layout = layout
        self._disk = disk
        self._fd: int | None = None

    def add(self, rollout_id: RolloutId, model_call_ids: Collection[str]) -> None:
        """Record that these rows are to stay cleared, if a log may hold them."""
        # Asked for each rollout, after its rows were read: the log of a row is older than it.
        if not model_call_ids or not logs_exist(self._layout):
            return
        if self._fd is None:
            self._fd = self._disk.open_append(self._layout.tombstones)
        line = orjson.dumps({"rollout_id": rollout_id, "model_call_ids": list(model_call_ids)})
        try:
            append_line(self._disk, self._fd, line)
        except OSError as error:
            if not says_no_locks(error):
                raise
            # The log is that of a host for which locks do work here.
            append_line(self._disk, self._fd, line, lock=False)

    def __enter__(self) -> "Tombstones":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._fd is None:
            return
        try:
            self._disk.sync(self._fd)
            self._disk.sync_directory(self._layout.hidden)
        finally:
            self._disk.close(self._fd)
            self._fd = None


def logs_exist(layout: Layout) -> bool:
    """Say whether there is any commit log, of the living or the dead."""
    try:
        return any(layout.logs.iterdir())
    except OSError:
        return False


def read_tombstones(layout: Layout, disk: Disk) -> set[str]:
    """Return the ids of all rows that are to stay cleared. Raises `OSError`."""
    found: set[str] = set()
    for item in read_file(disk, layout.tombstones, of_rows=False):
        if not isinstance(item, Damaged):
            found.update(map(str, as_array(item.get("model_call_ids")) or ()))
    return found


def forget_tombstones(layout: Layout, disk: Disk) -> None:
    """Empty the tombstones when no log is left that could bring a row back. Raises `OSError`."""
    if not layout.tombstones.exists():
        return
    fd = disk.open_append(layout.tombstones)
    try:
        # Under the lock nothing is added; a log made after the look holds newer rows only.
        with disk.locks.exclusive(fd):
            if not logs_exist(layout):
                # Else a power cut could bring the logs back and not the tombstones.
                disk.sync_directory(layout.logs)
                disk.truncate(fd, 0)
    finally:
        disk.close(fd)
