"""Which rollouts lack a row: one small file each, under the hidden folder."""

from collections.abc import Collection

from nemo_gym.capture.layout import Layout
from nemo_gym.files.disk import Disk
from nemo_gym.ids import RolloutId

__all__ = ["has_mark", "marked_rollouts", "remove_marks", "write_mark"]


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


def marked_rollouts(layout: Layout) -> set[RolloutId]:
    """Return the ids of all rollouts that lack a row."""
    try:
        return {RolloutId(path.name) for path in layout.marks.iterdir()}
    except OSError:
        return set()
