"""Starting a writer on a directory: what this file system can do decides how rows are kept.

Local and with locks: shared capture files and a commit log. Not known to be local: the capture
files themselves are synced. Without locks: a file for each writer, synced too.
"""

import logging
from collections.abc import Sequence

from nemo_gym.capture.claims import Claims
from nemo_gym.capture.commit_log import CommitLog
from nemo_gym.capture.layout import Layout
from nemo_gym.capture.reading import writers_are_named, writers_of
from nemo_gym.capture.rollout_files import RolloutFiles
from nemo_gym.capture.writer import Writer, WriterParts
from nemo_gym.files.disk import Disk, make_durable_directory, sync_name

__all__ = ["open_writer"]

logger = logging.getLogger(__name__)


def open_writer(
    layout: Layout, disk: Disk, claims: Claims, name: str, segment_bytes: int
) -> Writer:
    """Make what is missing of the directory and start its writer; `name` is used by no other.

    Raises `OSError` when the directory cannot be created or written.
    """
    _make_folders(layout, disk)
    _prove_writable(layout, disk, name)
    locks_work = claims.open()
    if not locks_work:
        logger.warning(
            "capture: file locks do not work in %s, so every writer has files of its own and "
            "calls under way cannot be seen by other processes",
            layout.directory,
        )

    own = None if locks_work else name
    logged = locks_work and disk.is_local(layout.directory)

    def prepare() -> CommitLog | None:
        _make_folders(layout, disk)
        if own is not None:
            _name_writers(layout, disk, (own,))
        if not logged:
            _sync_names(layout, disk)
            return None
        log = CommitLog(layout, disk, name, segment_bytes)
        log.open()
        return log

    return Writer(WriterParts(layout, disk, RolloutFiles(layout, disk, own), claims, prepare))


def _make_folders(layout: Layout, disk: Disk) -> None:
    """Make what is missing, durably: what lies in a folder is gone with the folder's name."""
    make_durable_directory(disk, layout.directory)
    if not writers_are_named(layout):
        _name_writers(layout, disk, writers_of(layout))
    for folder in layout.folders:
        disk.make_directory(folder)


def _name_writers(layout: Layout, disk: Disk, names: Sequence[str]) -> None:
    """Tell readers, durably, whose files of their own there are."""
    if not names:
        return
    disk.make_directory(layout.writers)
    for name in names:
        disk.close(disk.open_append(layout.writers / name))
    disk.sync_directory(layout.writers)


def _sync_names(layout: Layout, disk: Disk) -> None:
    """Do for the names what opening a commit log does, where there is none."""
    for folder in (layout.writers, layout.hidden, layout.directory):
        if folder.exists():
            disk.sync_directory(folder)
    sync_name(disk, layout.directory)


def _prove_writable(layout: Layout, disk: Disk, name: str) -> None:
    probe = layout.directory / f".nemo_gym.{name}.probe"
    fd = disk.open_append(probe)
    disk.close(fd)
    disk.unlink(probe)
