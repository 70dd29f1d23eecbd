"""The bytes of capture files, line by line, as they lie on the disk."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path

from nemo_gym.capture.reading import files_of_rollout
from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.append import read_locked
from nemo_gym.files.disk import REAL_DISK, Disk
from nemo_gym.files.locks import says_no_locks
from nemo_gym.ids import parse_rollout_id
from nemo_gym.observability.facts import facts_of

__all__ = ["RawLine", "is_row", "lines_in", "lines_of_files", "raw_lines", "read_bytes"]


@dataclass(frozen=True, slots=True)
class RawLine:
    """One line of a capture file, whole or not."""

    path: Path
    offset: int
    """First byte of the line in its file."""
    body: bytes
    """Without the line end."""
    ended: bool
    """Whether the line end is there; a line without one is torn, or still being written."""


def raw_lines(store: CaptureStore, rollout_id: str) -> Generator[RawLine]:
    """Yield every line of a rollout that is not blank; raises `InvalidRolloutId`."""
    return lines_of_files(files_of_rollout(store.layout, parse_rollout_id(rollout_id)))


def lines_of_files(paths: Iterable[Path]) -> Generator[RawLine]:
    """Yield every line of these files that is not blank, one file held at a time."""
    for path in paths:
        try:
            data = read_bytes(path)
        except FileNotFoundError:
            continue
        yield from lines_in(path, data)


def read_bytes(path: Path, disk: Disk = REAL_DISK) -> bytes:
    """Return the content of a capture file, read while nobody writes."""
    fd = disk.open_read(path)
    try:
        return read_locked(disk, fd)
    except OSError as error:
        if not says_no_locks(error):
            raise
        return read_locked(disk, fd, lock=False)
    finally:
        disk.close(fd)


def is_row(line: RawLine) -> bool:
    """Say whether a line is a whole row: a JSON object, with its end or, at the last, without."""
    return facts_of(line.body) is not None


def lines_in(path: Path, data: bytes) -> Generator[RawLine]:
    """Yield the lines of a file's content that are not blank."""
    offset = 0
    while offset < len(data):
        end = data.find(b"\n", offset)
        ended = end >= 0
        body = data[offset:end] if ended else data[offset:]
        if body.strip():
            yield RawLine(path, offset, body, ended)
        offset = end + 1 if ended else len(data)
