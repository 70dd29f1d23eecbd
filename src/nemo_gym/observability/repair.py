"""Damaged bytes of capture files moved aside; every good row stays, in its order.

That holds for rows that share a line with others or with damage, too: each gets a line of its own.

The file is written anew beside the old one and takes its name while the old one is locked. A
server that holds the old file sees that it is gone at its next append and opens the new one.

What is moved aside may have been a row, so the rollout is marked as lacking one.
"""

from dataclasses import dataclass
from pathlib import Path

from nemo_gym.capture.layout import Layout
from nemo_gym.capture.marks import write_mark
from nemo_gym.capture.reading import files_of_rollout
from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.append import read_locked
from nemo_gym.files.disk import REAL_DISK, Disk
from nemo_gym.files.locks import says_no_locks
from nemo_gym.files.replace import replace_file
from nemo_gym.ids import RolloutId, parse_rollout_id
from nemo_gym.observability.raw_lines import RawLine, is_row, lines_in
from nemo_gym.observability.salvage import rows_within

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
    parsed = parse_rollout_id(rollout_id)
    files = files_of_rollout(store.layout, parsed)
    found = (_repair_file(path, store.layout, parsed, disk) for path in files)
    return [repaired for repaired in found if repaired is not None]


def _repair_file(path: Path, layout: Layout, rollout_id: RolloutId, disk: Disk) -> Repaired | None:
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
        aside = _move_aside(bad, layout.damaged, path, disk) if bad else None
        parted = len(good) - sum(map(is_row, lines))
        done = Repaired(path, len(bad), sum(map(len, bad)), aside, parted)
        # Only once the damaged bytes are safe elsewhere, and are told of, does the file lose them.
        if aside is not None:
            write_mark(layout, disk, rollout_id, _why_marked(done, aside.relative_to(path.parent)))
        replace_file(path, b"".join(row + b"\n" for row in good), disk=disk)
        return done
    finally:
        # Closing lets go of the lock.
        disk.close(fd)


def _why_marked(done: Repaired, aside: Path) -> str:
    pieces = f"{done.moved} damaged {'line' if done.moved == 1 else 'lines'}"
    return (
        f"a row may be missing: a repair moved {pieces} "
        f"({done.moved_bytes} bytes) of {done.path.name} to {aside}"
    )


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
