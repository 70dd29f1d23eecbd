"""Clearing rollouts before they are dispatched anew: their rows and marks go, their files stay.

Files are cut to nothing under their lock, never unlinked: a running server may hold them. A
tombstone keeps a commit log from bringing the rows back.
"""

from collections.abc import Collection, Generator
from pathlib import Path

from nemo_gym.capture.layout import Layout
from nemo_gym.capture.marks import marked_rollouts, remove_marks
from nemo_gym.capture.reading import (
    capture_file_at,
    capture_files,
    files_of_rollout,
    model_call_ids,
)
from nemo_gym.capture.rollout_files import sync_files
from nemo_gym.capture.tombstones import Tombstones
from nemo_gym.files.disk import Disk
from nemo_gym.files.locks import says_no_locks
from nemo_gym.ids import RolloutId

__all__ = ["clear_rollouts"]

_FEW = 64


def clear_rollouts(layout: Layout, disk: Disk, rollout_ids: Collection[RolloutId]) -> None:
    """Drop everything of these rollouts, durable when this returns. Raises `OSError`."""
    wanted = set(rollout_ids)
    full = list(_full_files(layout, wanted))
    with Tombstones(layout, disk) as tombstones:
        for path, rollout_id in full:
            _clear_file(disk, tombstones, path, rollout_id)
    if full:
        sync_files(disk, layout.directory, [path for path, _ in full])
    remove_marks(layout, disk, wanted & marked_rollouts(layout))


def _full_files(layout: Layout, wanted: Collection[RolloutId]) -> Generator[tuple[Path, RolloutId]]:
    """Yield the files of these rollouts that hold anything."""
    if len(wanted) > _FEW:
        # One look at the directory, however many rollouts there are.
        for file in capture_files(layout):
            if file.rollout_id in wanted and not file.is_cleared:
                yield file.path, file.rollout_id
        return
    for rollout_id in wanted:
        for path in files_of_rollout(layout, rollout_id):
            found = capture_file_at(path)
            if found is not None and not found.is_cleared:
                yield path, rollout_id


def _clear_file(disk: Disk, tombstones: Tombstones, path: Path, rollout_id: RolloutId) -> None:
    try:
        fd = disk.open_existing(path)
    except FileNotFoundError:
        return
    try:
        try:
            disk.locks.lock_exclusive(fd)
        except OSError as error:
            if not says_no_locks(error):
                raise
        data = disk.read_at(fd, disk.state(fd).size, 0)
        tombstones.add(rollout_id, model_call_ids(data))
        disk.truncate(fd, 0)
    finally:
        # Closing lets go of the lock.
        disk.close(fd)
