"""A capture file piece by piece, and the place where a reader of it stands.

A file may be cleared and have grown again at any moment, so a place is not a number: it holds the
beginning of the last line before it, which has an id that is never used twice. The lock is held
while a piece is read, never while somebody works on it.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from nemo_gym.files.disk import REAL_DISK, Disk
from nemo_gym.files.jsonl import start_of_last_line
from nemo_gym.files.locks import says_no_locks

__all__ = ["START", "Piece", "Place", "last_lines", "pieces_behind", "read_piece", "reading"]

_BLOCK = 512 * 1024
_BLOCK_FROM_THE_END = 64 * 1024
_HEAD = 96
"""Enough of a row for its id, which stands first."""
_TAIL = 64


class Place(NamedTuple):
    """Where a reader stands: behind a line, or at the start."""

    offset: int
    """First byte that was not read."""
    last: int
    """First byte of the last line before it."""
    head: bytes
    """What that line begins with; nothing at the start."""
    tail: bytes
    """What it ends with, its end included."""


START = Place(0, 0, b"", b"")


class Piece(NamedTuple):
    """What follows a place."""

    data: bytes
    """Whole lines with their ends; then, at the end of the file, what has none yet."""
    whole: int
    """How many bytes of it are whole lines."""
    offset: int
    """First byte of it in the file."""
    place: Place
    """Where a reader of the whole lines stands."""
    anew: bool
    """The file is not the one that was read, which was cleared or replaced: this is its start."""
    is_last: bool
    """Nothing follows it."""


@contextmanager
def reading(path: Path, disk: Disk = REAL_DISK) -> Generator[int]:
    """Give the descriptor of an open file. Raises `OSError`."""
    fd = disk.open_read(path)
    try:
        yield fd
    finally:
        disk.close(fd)


def read_piece(disk: Disk, fd: int, place: Place) -> Piece:
    """Return some of what follows a place: a line at least, if there is one. Raises `OSError`."""
    with _shared(disk, fd):
        return _read_piece(disk, fd, place)


def pieces_behind(disk: Disk, fd: int, place: Place = START) -> Generator[Piece]:
    """Yield everything that follows a place; `anew` may come at any time. Raises `OSError`."""
    while True:
        piece = read_piece(disk, fd, place)
        yield piece
        if piece.is_last:
            return
        place = piece.place


def last_lines(disk: Disk, fd: int) -> Generator[tuple[Place, bytes]]:
    """Yield the whole lines of a file from the last one on, each with the place behind it.

    The lock is held between them. Raises `OSError`.
    """
    with _shared(disk, fd):
        end = start_of_last_line(disk, fd, disk.state(fd).size)
        while end > 0:
            line = _line_before(disk, fd, end)
            start = end - len(line)
            yield _place_behind(line, start), line[:-1]
            end = start


def _place_behind(lines: bytes, offset: int) -> Place:
    """Return the place behind whole lines that lie at `offset`."""
    start = lines.rfind(b"\n", 0, len(lines) - 1) + 1
    head = lines[start : start + _HEAD]
    return Place(offset + len(lines), offset + start, head, lines[max(start, len(lines) - _TAIL) :])


def _read_piece(disk: Disk, fd: int, place: Place) -> Piece:
    anew = not _is_there(disk, fd, place)
    if anew:
        place = _found_again(disk, fd, place)
        anew = place == START
    size = disk.state(fd).size
    parts: list[bytes] = []
    offset, block = place.offset, _BLOCK
    # No more than there is: memory for what is not there costs as much as reading.
    while part := disk.read_at(fd, min(block, size - offset), offset):
        parts.append(part)
        offset += len(part)
        if b"\n" in part:
            break
        block *= 2
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    whole = data.rfind(b"\n") + 1
    is_last = offset >= size
    behind = _place_behind(data[:whole], place.offset) if whole else place
    # What has no end yet is read again, with its end, where more of it follows.
    return Piece(data if is_last else data[:whole], whole, place.offset, behind, anew, is_last)


def _is_there(disk: Disk, fd: int, place: Place) -> bool:
    """Say whether the line before a place is still that line, with its end."""
    if place == START:
        return True
    return (
        disk.read_at(fd, len(place.head), place.last) == place.head
        and disk.read_at(fd, len(place.tail), place.offset - len(place.tail)) == place.tail
    )


def _found_again(disk: Disk, fd: int, place: Place) -> Place:
    """Return the place behind the same line elsewhere, where a repair took bytes before it away.

    The start, where it is not in the file: then the file was cleared.
    """
    offset, before = 0, b"\n"
    length = place.offset - place.last
    while part := disk.read_at(fd, _BLOCK, offset):
        text = before + part
        found = text.find(b"\n" + place.head)
        if found >= 0:
            start = offset - len(before) + found + 1
            moved = place._replace(offset=start + length, last=start)
            return moved if _is_there(disk, fd, moved) else START
        before = text[-_HEAD:]
        offset += len(part)
    return START


def _line_before(disk: Disk, fd: int, end: int) -> bytes:
    """Return the line, with its end, that ends before `end`."""
    parts: list[bytes] = []
    start, block, behind = end, _BLOCK_FROM_THE_END, end - 1
    while start > 0:
        begin = max(0, start - block)
        part = disk.read_at(fd, start - begin, begin)
        found = part.rfind(b"\n", 0, behind - begin)
        parts.append(part[found + 1 :])
        if found >= 0:
            break
        start, block, behind = begin, block * 2, begin
    return b"".join(reversed(parts))


@contextmanager
def _shared(disk: Disk, fd: int) -> Generator[None]:
    """Hold a file together with other readers, where there are locks."""
    try:
        disk.locks.lock_shared(fd)
    except OSError as error:
        if not says_no_locks(error):
            raise
        yield
        return
    try:
        yield
    finally:
        disk.locks.unlock(fd)
