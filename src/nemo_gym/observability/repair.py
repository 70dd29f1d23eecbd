"""Damaged bytes of capture files moved aside; every good row stays, in its order.

The file is written anew beside the old one and takes its name while the old one is locked. A
server that holds the old file sees that it is gone at its next append and opens the new one.
"""

from dataclasses import dataclass
from pathlib import Path

from nemo_gym.capture.reading import files_of_rollout
from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.append import read_locked
from nemo_gym.files.disk import REAL_DISK, Disk
from nemo_gym.files.locks import says_no_locks
from nemo_gym.files.replace import replace_file
from nemo_gym.ids import parse_rollout_id
from nemo_gym.observability.raw_lines import RawLine, lines_in
from nemo_gym.observability.summaries import is_row

__all__ = ["Repaired", "repair_rollout"]


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was moved out of one capture file."""

    path: Path
    moved: int
    """Damaged lines."""
    moved_bytes: int
    aside: Path
    """Where the damaged bytes lie now."""


def repair_rollout(store: CaptureStore, rollout_id: str, disk: Disk = REAL_DISK) -> list[Repaired]:
    """Move what is no row out of the files of a rollout; raises `OSError` with the file as it was.

    A rollout with a call under way should be left alone: its last line may only be unfinished.
    """
    files = files_of_rollout(store.layout, parse_rollout_id(rollout_id))
    found = (_repair_file(path, store.layout.hidden / "damaged", disk) for path in files)
    return [repaired for repaired in found if repaired is not None]


def _repair_file(path: Path, folder: Path, disk: Disk) -> Repaired | None:
    fd = disk.open_append(path)
    try:
        try:
            disk.locks.lock_exclusive(fd)
        except OSError as error:
            if not says_no_locks(error):
                raise
        lines = list(lines_in(path, read_locked(disk, fd, lock=False)))
        bad = [line for line in lines if not is_row(line)]
        if not bad:
            return None
        aside = _move_aside(bad, folder, path, disk)
        good = b"".join(line.body + b"\n" for line in lines if is_row(line))
        # Only once the damaged bytes are safe elsewhere does the file lose them.
        replace_file(path, good, disk=disk)
        return Repaired(path, len(bad), sum(len(line.body) for line in bad), aside)
    finally:
        # Closing lets go of the lock.
        disk.close(fd)


def _move_aside(bad: list[RawLine], folder: Path, path: Path, disk: Disk) -> Path:
    disk.make_directory(folder)
    number = 0
    while (aside := folder / f"{path.name}.{number}").exists():
        number += 1
    replace_file(aside, b"".join(line.body + b"\n" for line in bad), disk=disk)
    return aside
