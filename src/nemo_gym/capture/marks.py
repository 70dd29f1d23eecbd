"""Which rollouts lack a row: one small file each, under the hidden folder."""

from collections.abc import Collection

from nemo_gym.capture.layout import Layout
from nemo_gym.errors import InvalidRolloutId
from nemo_gym.files.disk import Disk
from nemo_gym.ids import RolloutId, parse_rollout_id

__all__ = ["has_mark", "marked_rollouts", "read_mark", "remove_marks", "write_mark"]


_LONGEST_READ = 64 * 1024


def write_mark(layout: Layout, disk: Disk, rollout_id: RolloutId, reason: str) -> None:
    """Record, durably, that a row of the rollout is missing and why. Raises `OSError`."""
    disk.make_directory(layout.marks)
    fd = disk.open_append(layout.mark(rollout_id))
    try:
        # The file alone is the mark: on a full disk it may exist and hold no reason.
        disk.write(fd, reason.replace("\n", " ").encode("utf-8", "replace") + b"\n")
    except OSError:
        pass
    finally:
        disk.close(fd)
    disk.sync_directory(layout.marks)


def has_mark(layout: Layout, rollout_id: RolloutId) -> bool:
    """Say whether a row of the rollout is known to be missing."""
    return layout.mark(rollout_id).exists()


def remove_marks(layout: Layout, disk: Disk, rollout_ids: Collection[RolloutId]) -> None:
    """Forget, durably, what was said of earlier attempts under the same ids. Raises `OSError`."""
    for rollout_id in rollout_ids:
        disk.unlink(layout.mark(rollout_id))
    if rollout_ids:
        disk.sync_directory(layout.marks)


def read_mark(layout: Layout, disk: Disk, rollout_id: RolloutId) -> list[str]:
    """Return why rows of the rollout are missing, as far as it was written down.

    Nothing where there is no mark. Raises `OSError`.
    """
    try:
        fd = disk.open_read(layout.mark(rollout_id))
    except FileNotFoundError:
        return []
    try:
        text = disk.read_at(fd, _LONGEST_READ, 0).decode("utf-8", "replace")
    finally:
        disk.close(fd)
    return list(dict.fromkeys(line for line in text.splitlines() if line.strip()))


def marked_rollouts(layout: Layout) -> set[RolloutId]:
    """Return the ids of all rollouts that lack a row. Raises `OSError`."""
    try:
        return set(filter(None, (_rollout_of(path.name) for path in layout.marks.iterdir())))
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _rollout_of(name: str) -> RolloutId | None:
    try:
        return parse_rollout_id(name)
    except InvalidRolloutId:  # not ours
        return None
