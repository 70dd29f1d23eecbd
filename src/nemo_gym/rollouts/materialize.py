"""Input rows in, `x_materialized_inputs.jsonl` out, and read back one rollout at a time.

Every rollout of the run is one line: the row as it is sent to its agent. Writing it checks all
rows before any of them costs something, and gives the run its length and its fingerprint.
"""

import hashlib
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import msgspec.structs

from nemo_gym.files.disk import REAL_DISK
from nemo_gym.rollouts.lines import Members, join_members, members_of, split_members, text_of
from nemo_gym.rollouts.plan import PlannedRollout, Planner, SourceRow

__all__ = ["Materialized", "materialize", "read_planned"]

_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Materialized:
    """What was planned."""

    scratch: Path
    """The lines; give the file its name once the manifest is written."""
    tasks: int
    rollouts: int
    sha256: str
    prefix_sha256: str | None
    """Of the first `prefix` rows; None when there are fewer."""


class _Head(msgspec.Struct):
    """What the driver itself needs of a materialised row; the rest is skipped over."""

    task_index: int = msgspec.field(name="_ng_task_index")
    rollout_index: int = msgspec.field(name="_ng_rollout_index")
    agent_ref: msgspec.Raw
    explicit_id: str | None = msgspec.field(name="_ng_rollout_id", default=None)


_HEAD = msgspec.json.Decoder(_Head)
_HEAD_KEYS = frozenset(field.encode_name for field in msgspec.structs.fields(_Head))


def materialize(
    rows: Iterable[SourceRow], planner: Planner, path: Path, *, prefix: int | None = None
) -> Materialized:
    """Write the lines of every planned rollout to a scratch file beside `path`.

    Raises `InvalidRow`, or `OSError`, and leaves no file then. `prefix` asks for the fingerprint of
    the first so many rows as well.
    """
    scratch = path.with_name(f".{path.name}.new")
    seen = _Fingerprint(prefix)
    rollouts = 0
    try:
        with scratch.open("wb", buffering=_BUFFER_BYTES) as file:
            for planned in planner.plan(seen.over(rows, planner.request.limit)):
                file.write(planned.line + b"\n")
                rollouts += 1
    except BaseException:
        REAL_DISK.unlink(scratch)
        raise
    return Materialized(scratch, planner.tasks, rollouts, seen.hexdigest(), seen.prefix_hexdigest)


class _Fingerprint:
    """SHA-256 of rows as they pass."""

    def __init__(self, prefix: int | None) -> None:
        self._hash = hashlib.sha256()
        self._prefix = prefix
        self._rows = 0
        self.prefix_hexdigest = self.hexdigest() if prefix == 0 else None

    def over(self, rows: Iterable[SourceRow], limit: int | None) -> Iterator[SourceRow]:
        for row in rows:
            if limit is not None and self._rows >= limit:
                return
            self._hash.update(row.data)
            self._hash.update(b"\n")
            self._rows += 1
            if self._rows == self._prefix:
                self.prefix_hexdigest = self.hexdigest()
            yield row

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def read_planned(path: Path) -> Generator[PlannedRollout]:
    """Yield the planned rollouts of a materialised file, in order; memory holds one."""
    with path.open("rb", buffering=_BUFFER_BYTES) as file:
        for text in file:
            line = text.rstrip(b"\n")
            head = _head_of(line)
            agent_ref = bytes(head.agent_ref)
            yield PlannedRollout(
                head.task_index,
                head.rollout_index,
                text_of(members_of(agent_ref).get("name")) or "",
                agent_ref,
                head.explicit_id,
                line,
            )


def _head_of(line: bytes) -> _Head:
    try:
        return _HEAD.decode(line)
    except msgspec.DecodeError:  # half a character somewhere, which only the slow way reads
        return _HEAD.decode(join_members(_only_head(split_members(line))))


def _only_head(members: Members) -> Members:
    return {key: raw for key, raw in members.items() if key in _HEAD_KEYS}
