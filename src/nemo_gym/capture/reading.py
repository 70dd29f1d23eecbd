"""Stored lines back out: the files of a rollout in, exchanges or `Damaged` out, in append order.

Files are read under a shared lock, so a line is never seen half written. Where each writer has a
file of its own the rows are joined by `completed_at`, then `model_call_id`.
"""

import math
import os
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from nemo_gym.capture.layout import Layout
from nemo_gym.files.append import read_locked
from nemo_gym.files.disk import Disk
from nemo_gym.files.jsonl import Damaged
from nemo_gym.files.locks import says_no_locks
from nemo_gym.files.regular import not_regular
from nemo_gym.ids import RolloutId
from nemo_gym.wire.deep_json import loads_by_loop
from nemo_gym.wire.json import JsonError, is_object, loads_leniently, loads_strictly

__all__ = [
    "CaptureFile",
    "StoredExchange",
    "capture_file_at",
    "capture_files",
    "files_of_rollout",
    "holds_row",
    "load_line",
    "model_call_ids",
    "names_call",
    "read_file",
    "read_rollout",
    "strange_names",
    "writers_are_named",
    "writers_of",
]

StoredExchange = dict[str, Any]
"""One line as stored: the keys of the capture file, payloads as they crossed the boundary."""


@dataclass(frozen=True, slots=True)
class CaptureFile:
    """One file of a capture directory."""

    path: Path
    rollout_id: RolloutId
    writer: str | None
    """The only writer of the file; None for the file that all share."""
    size: int
    """In bytes; 0 once it was cleared."""
    problem: str | None = None
    """Why it is no file that rows can be in, such as a pipe or a ring of links; None: it is one."""
    number: int = 0
    """Of the file in its file system: another one under the same name has another."""
    changed_ns: int = 0
    """UTC Unix nanoseconds at which it was last written, cleared or put in its place."""

    @property
    def is_cleared(self) -> bool:
        """There are surely no rows in it."""
        return self.size == 0 and self.problem is None


ROW_KEYS = frozenset(
    (
        *("model_call_id", "dialect", "model_ref", "started_at", "completed_at", "latency_ms"),
        *("latency_ttft_ms", "status_code", "error_category", "request", "response"),
        *("request_raw", "response_raw", "response_source", "upstream_attempted"),
        *("upstream_status_code", "upstream_attempts", "local_response_reason"),
        *("client_session_id", "client_assistant_message_id", "notes"),
    )
)
"""What a stored line may hold. Others may have written less of it, but not nothing."""


_LEADS_NOWHERE = "A link that leads nowhere"


class _IdOnly(msgspec.Struct):
    model_call_id: str


# As every row begins that a server here has written.
_BEGINS = re.compile(rb'\{"model_call_id":"(?P<id>[0-9A-Za-z._-]+)"')
_HEAD_BYTES = 256
_ID_DECODER = msgspec.json.Decoder(_IdOnly)


def capture_files(layout: Layout) -> Generator[CaptureFile]:
    """Yield every capture file of the directory, in no particular order."""
    for name in _names(layout):
        found = capture_file_at(layout.directory / name)
        if found is not None:
            yield found


def strange_names(layout: Layout) -> list[str]:
    """Return the names that end as those of capture files do and belong to no rollout."""
    names = (name for name in _names(layout) if layout.looks_like_capture(name))
    return sorted(name for name in names if layout.parse(name) is None)


def _names(layout: Layout) -> Generator[str]:
    try:
        entries = os.scandir(layout.directory)
    except FileNotFoundError:
        return
    with entries:
        for entry in entries:
            yield entry.name


def capture_file_at(path: Path) -> CaptureFile | None:
    """Return the capture file of this name; None where nothing is, or it has another's name."""
    name = Layout.parse(path.name)
    if name is None:
        return None
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        if not path.is_symlink():
            return None
        return CaptureFile(path, *name, size=0, problem=_LEADS_NOWHERE)
    except OSError as error:
        return CaptureFile(path, *name, size=0, problem=_reason(error))
    problem = not_regular(status.st_mode, path)
    if problem is not None:
        return CaptureFile(path, *name, size=0, problem=_reason(problem))
    changed_ns = max(status.st_mtime_ns, status.st_ctime_ns)
    return CaptureFile(
        path, *name, size=status.st_size, number=status.st_ino, changed_ns=changed_ns
    )


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def files_of_rollout(layout: Layout, rollout_id: RolloutId) -> list[Path]:
    """Return the files of one rollout that are there, the shared one first."""
    paths = (layout.capture_file(rollout_id, writer) for writer in (None, *writers_of(layout)))
    return [path for path in paths if capture_file_at(path) is not None]


def writers_of(layout: Layout) -> Sequence[str]:
    """Return the names of all writers with capture files of their own."""
    try:
        if writers_are_named(layout):
            return sorted(os.listdir(layout.writers))
        return _writers_seen(layout.directory, layout.directory.stat().st_mtime_ns)
    except OSError:
        return ()


def writers_are_named(layout: Layout) -> bool:
    """Say whether each of them has its file under `Layout.writers`.

    Not where the hidden folder was not copied along or was removed, whatever was made in it since:
    who opens the directory for writing names them and then makes the folder of the logs.
    """
    return os.path.exists(layout.logs)


@lru_cache(maxsize=4)
def _writers_seen(directory: Path, _changed_ns: int) -> Sequence[str]:
    """Look for them among all files: one look, for however many rollouts."""
    names = (Layout.parse(name) for name in os.listdir(directory) if name[0] != ".")
    writers = {name.writer for name in names if name is not None and name.writer is not None}
    return sorted(writers - {".", ".."})


def read_rollout(
    layout: Layout, disk: Disk, rollout_id: RolloutId
) -> list[StoredExchange | Damaged]:
    """Return every line of a rollout, in append order; what cannot be read is `Damaged`."""
    parts = [list(read_file(disk, path)) for path in files_of_rollout(layout, rollout_id)]
    if len(parts) == 1:
        return parts[0]
    return sorted((item for part in parts for item in part), key=_joined_order)


def read_file(
    disk: Disk, path: Path, *, of_rows: bool = True
) -> Generator[StoredExchange | Damaged]:
    """Yield every line of one file; `of_rows`: an object that is no stored call is damage."""
    try:
        data = _read_bytes(disk, path)
    except FileNotFoundError:
        return
    offset, number = 0, 0
    while offset < len(data):
        number += 1
        end = data.find(b"\n", offset)
        torn = end < 0
        end = len(data) if torn else end
        # With its end: of a file with one line this is no copy.
        line = data[offset : end + 1]
        if not line.isspace():
            yield _decode(line, Damaged(path, number, offset, end - offset, "", torn), of_rows)
        offset = end + 1


def model_call_ids(data: bytes) -> list[str]:
    """Return the ids of the rows in the bytes of a capture file; damaged lines have none."""
    ids = (_model_call_id(line) for line in data.split(b"\n") if line)
    return [found for found in ids if found is not None]


def names_call(disk: Disk, path: Path, is_named: Callable[[str], bool]) -> bool:
    """Say whether a capture file has a row by an id that `is_named`; the first is asked first.

    The others, of which it takes all bytes of the file to know, only where that one is not.
    Raises `OSError`.
    """
    fd = disk.open_read(path)
    try:
        begins = _BEGINS.match(disk.read_at(fd, _HEAD_BYTES, 0))
    finally:
        disk.close(fd)
    if begins is not None and is_named(begins["id"].decode("ascii")):
        return True
    return any(map(is_named, model_call_ids(_read_bytes(disk, path))))


def _model_call_id(line: bytes) -> str | None:
    try:
        return _ID_DECODER.decode(line).model_call_id
    except (msgspec.MsgspecError, RecursionError):
        pass
    # Rows that a strict reader refuses are whole all the same.
    try:
        value = load_line(line)
    except ValueError:
        return None
    found = value.get("model_call_id") if is_object(value) else None
    return found if isinstance(found, str) else None


def _read_bytes(disk: Disk, path: Path) -> bytes:
    fd = disk.open_read(path)
    try:
        return read_locked(disk, fd)
    except OSError as error:
        if not says_no_locks(error):
            raise
        return read_locked(disk, fd, lock=False)
    finally:
        disk.close(fd)


def _decode(line: bytes, damaged: Damaged, of_rows: bool) -> StoredExchange | Damaged:
    """Return the object that a line holds; where it holds none, what is damaged, and how."""
    try:
        value = load_line(line)
    except ValueError as error:
        return replace(damaged, reason=f"not JSON: {error}")
    if not isinstance(value, dict):
        return replace(damaged, reason="not a JSON object")
    if of_rows and not holds_row(value):
        return replace(damaged, reason="none of the keys of a model call")
    return value


def holds_row(value: Mapping[str, object]) -> bool:
    """Say whether an object has anything that a stored call has."""
    return not ROW_KEYS.isdisjoint(value)


def load_line(body: bytes) -> object:
    """Return the JSON value of a stored line, however deep it or our own stack is.

    Raises `ValueError`.
    """
    try:
        return loads_strictly(body)
    except JsonError:
        # Stricter than JSON is: huge numbers, lone surrogates and deep nesting are none of its.
        text = body.decode("utf-8")
    try:
        return loads_leniently(text)
    except RecursionError:  # says nothing of the row: its writer stood on another stack
        return loads_by_loop(text)


def _joined_order(item: StoredExchange | Damaged) -> tuple[float, str]:
    if isinstance(item, Damaged):
        return math.inf, str(item)
    completed, call_id = item.get("completed_at"), str(item.get("model_call_id"))
    if isinstance(completed, float) and math.isnan(completed):
        return 0.0, call_id
    # As it is: a number too large for a float compares with one all the same.
    return completed if isinstance(completed, int | float) else 0.0, call_id
