"""Files of JSON lines that survive a crash: rows in, durable lines out, and back.

`JsonlAppender` writes whole lines and syncs when told, one sync for all lines since the last.
`read_jsonl` gives every line with its number; what cannot be a line is a `Damaged` value, never an
exception. Nothing here knows what the rows mean.
"""

import threading
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec
import orjson

from nemo_gym.files.append import append_line
from nemo_gym.files.disk import REAL_DISK, Disk
from nemo_gym.files.locks import says_no_locks

__all__ = ["Damaged", "JsonlAppender", "read_jsonl", "read_jsonl_objects", "start_of_last_line"]

_BLOCK = 64 * 1024
_VALUE = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class Damaged:
    """A line that cannot be read."""

    path: Path
    line_number: int
    """From 1."""
    offset: int
    """First byte of the line in the file."""
    length: int
    """In bytes, without the line end."""
    reason: str
    """What is wrong with it, in words."""
    torn: bool = False
    """It is the last of the file and has no end: left by a crash, or still being written."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line_number}: {self.reason}"


class JsonlAppender:
    """Appends lines to one file; made with its parent directory when it is not there.

    Opening mends the tail: a last line without its end is given one when it is whole JSON, else it
    is dropped (`dropped_bytes` says how much). Safe to use from several threads; other processes
    may append to the same file.
    """

    def __init__(self, path: Path | str, *, disk: Disk = REAL_DISK) -> None:
        self.path = Path(path)
        self.dropped_bytes = 0
        self._disk = disk
        self._mutex = threading.Lock()
        disk.make_directory(self.path.parent)
        self._fd = disk.open_append(self.path)
        self._written, self._synced = 1, 0  # the name itself is not yet synced
        self._directory_synced = False
        self._locks_work = True
        try:
            self._open_tail()
        except BaseException:
            disk.close(self._fd)
            raise

    def append(self, line: bytes) -> None:
        r"""Write one line, whole or not at all; `line` has no `\n`. Not durable before `sync`.

        Raises `OSError` (a full disk, for one) with the file as it was.
        """
        with self._mutex:
            line = line.replace(b"\n", b" ")
            append_line(self._disk, self._fd, line, lock=self._locks_work)
            self._written += 1

    def sync(self) -> None:
        """Return once every line appended so far would survive a power cut."""
        with self._mutex:
            mark = self._written
            if mark == self._synced:
                return
        self._disk.sync(self._fd)
        if not self._directory_synced:
            self._disk.sync_directory(self.path.parent)
            self._directory_synced = True
        with self._mutex:
            self._synced = max(self._synced, mark)

    def close(self) -> None:
        """Sync and close; closing twice is no error."""
        if self._fd < 0:
            return
        try:
            self.sync()
        finally:
            self._disk.close(self._fd)
            self._fd = -1

    def __enter__(self) -> "JsonlAppender":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _open_tail(self) -> None:
        try:
            self._disk.locks.lock_exclusive(self._fd)
        except OSError as error:
            if not says_no_locks(error):
                raise
            self._locks_work = False
            self._mend_tail()
            return
        try:
            self._mend_tail()
        finally:
            self._disk.locks.unlock(self._fd)

    def _mend_tail(self) -> None:
        size = self._disk.state(self._fd).size
        start = start_of_last_line(self._disk, self._fd, size)
        if start == size:
            return
        if _is_whole(self._disk.read_at(self._fd, size - start, start)):
            self._disk.write(self._fd, b"\n")
        else:
            self._disk.truncate(self._fd, start)
            self.dropped_bytes = size - start


def read_jsonl(path: Path | str) -> Generator[tuple[int, bytes | Damaged]]:
    """Yield every line with its number from 1, without its line end; blank lines are left out.

    A last line without its end is yielded when it is whole JSON, else as `Damaged`. Other lines
    are not decoded: use `read_jsonl_objects` for that. Memory holds one line.
    """
    offset = 0
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            body = line.rstrip(b"\r\n")
            if not line.endswith(b"\n") and not _is_whole(body):
                reason = "the line has no end and is not whole"
                yield number, Damaged(Path(path), number, offset, len(body), reason, torn=True)
            elif body.strip():
                yield number, body
            offset += len(line)


def read_jsonl_objects(path: Path | str) -> Generator[tuple[int, dict[str, object] | Damaged]]:
    """Yield every line as a JSON object with its number; what is none is `Damaged`."""
    offset = 0
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, _decode(Path(path), number, offset, line)
            offset += len(line)


def _decode(path: Path, number: int, offset: int, line: bytes) -> dict[str, object] | Damaged:
    body, torn = line.rstrip(b"\r\n"), not line.endswith(b"\n")
    try:
        # It keeps whole numbers beyond 64 bits, which another makes floats of.
        value = _VALUE.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        return Damaged(path, number, offset, len(body), f"not JSON: {error}", torn=torn)
    if not isinstance(value, dict):
        return Damaged(path, number, offset, len(body), "not a JSON object", torn=torn)
    return value


def _is_whole(text: bytes) -> bool:
    """Say whether a line is whole JSON; no prefix of an object or an array is."""
    try:
        return isinstance(orjson.loads(text), dict | list)
    except orjson.JSONDecodeError:
        return False


def start_of_last_line(disk: Disk, fd: int, size: int) -> int:
    """Return the offset behind the last line end of the first `size` bytes; 0: there is none."""
    end = size
    while end > 0:
        begin = max(0, end - _BLOCK)
        found = disk.read_at(fd, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0
