"""Damaged bytes of capture files moved aside; every good row stays, in its order.

That holds for rows that share a line with others or with damage, too: each gets a line of its own.

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
from nemo_gym.observability.salvage import rows_within
from nemo_gym.observability.summaries import is_row

__all__ = ["Repaired", "repair_rollout"]


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was moved out of one capture file."""

    path: Path
    moved: int
    """Damaged pieces: lines, or what is left of one without the rows in it."""
    moved_bytes: int
    aside: Path | None
    """Where the damaged bytes lie now; None where rows only shared a line."""
    rows_parted: int = 0
    """Whole rows that stood in a line with others, or with damage."""


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
        if all(map(is_row, lines)):
            return None
        good, bad = _parted(lines)
        aside = _move_aside(bad, folder, path, disk) if bad else None
        # Only once the damaged bytes are safe elsewhere does the file lose them.
        replace_file(path, b"".join(row + b"\n" for row in good), disk=disk)
        parted = len(good) - sum(map(is_row, lines))
        return Repaired(path, len(bad), sum(map(len, bad)), aside, parted)
    finally:
        # Closing lets go of the lock.
        disk.close(fd)


def _parted(lines: list[RawLine]) -> tuple[list[bytes], list[bytes]]:
    """Return the rows, and the pieces that are none, in the order in which they lie."""
    good: list[bytes] = []
    bad: list[bytes] = []
    for line in lines:
        if is_row(line):
            good.append(line.body)
            continue
        rest = 0
        for start, end in rows_within(line.body):
            good.append(line.body[start:end])
            bad.append(line.body[rest:start])
            rest = end
        bad.append(line.body[rest:])
    return good, [piece for piece in bad if piece.strip()]


def _move_aside(bad: list[bytes], folder: Path, path: Path, disk: Disk) -> Path:
    disk.make_directory(folder)
    number = 0
    while (aside := folder / f"{path.name}.{number}").exists():
        number += 1
    replace_file(aside, b"".join(piece + b"\n" for piece in bad), disk=disk)
    return aside
