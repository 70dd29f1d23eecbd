"""A capture directory at a glance: rollouts in, one small summary each out; payloads stay on disk.

Only the few fields that a summary needs are decoded, so thousands of rollouts cost little, and one
piece of a file is held at a time.
"""

import re
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym.capture.reading import CaptureFile, capture_file_at, files_of_rollout
from nemo_gym.capture.standing import Standing
from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.disk import REAL_DISK, Disk
from nemo_gym.ids import RolloutId, parse_rollout_id
from nemo_gym.observability.facts import Facts, facts_of, glance
from nemo_gym.observability.pieces import Piece, pieces_behind, reading

__all__ = ["RolloutSummary", "summarize", "summarize_all"]


@dataclass(slots=True)
class RolloutSummary:
    """What is captured of one rollout."""

    rollout_id: str
    calls: int = 0
    tokens_in: int | None = None
    """Sum over the calls that reported it; None when none did."""
    tokens_out: int | None = None
    errors: dict[str, int] = field(default_factory=dict[str, int])
    """Calls by error category."""
    damaged: int = 0
    """Lines that cannot be read."""
    incomplete: bool | None = False
    """A row is known to be missing; None: that cannot be told."""
    pending: bool | None = False
    """A call is under way; None: that cannot be told."""
    unreadable: str | None = None
    """Why a file of it cannot be read; None: every one can. What follows in it is not counted."""
    completed_at: float | None = None
    """UTC Unix seconds at which the last call ended."""
    size_bytes: int = 0


_NUMBER = re.compile(r"(\d+)")


def summarize_all(
    store: CaptureStore, standing: Standing | None = None, *, every_byte: bool = False
) -> Generator[RolloutSummary]:
    """Yield a summary of every rollout that has rows or is known to lack one, in natural order.

    `every_byte`: the requests of long rows are looked into, too.
    """
    standing = standing or store.standing()
    files: dict[RolloutId, list[CaptureFile]] = {name: [] for name in standing.marked or ()}
    for file in store.files():
        if not file.is_cleared:
            files.setdefault(file.rollout_id, []).append(file)
    for rollout_id in sorted(files, key=_natural):
        ordered = sorted(files[rollout_id], key=lambda file: file.path)
        yield _Summing(store, standing, rollout_id, every_byte).of(ordered)


def summarize(store: CaptureStore, rollout_id: str) -> RolloutSummary:
    """Return the summary of one rollout; raises `InvalidRolloutId`."""
    parsed = parse_rollout_id(rollout_id)
    found = map(capture_file_at, files_of_rollout(store.layout, parsed))
    files = [file for file in found if file is not None]
    return _Summing(store, store.standing(), parsed, every_byte=True).of(files)


class _Summing:
    """One rollout that is being summed up."""

    def __init__(
        self, store: CaptureStore, standing: Standing, rollout_id: RolloutId, every_byte: bool
    ) -> None:
        self._store = store
        self._standing = standing
        self._rollout_id = rollout_id
        self._every_byte = every_byte
        self._sum = RolloutSummary(rollout_id)

    def of(self, files: Iterable[CaptureFile], disk: Disk = REAL_DISK) -> RolloutSummary:
        """Return the summary of the rollout, which has these files."""
        files = list(files)
        while not self._add_files(files, disk):
            pass
        self._sum.pending = self._standing.is_pending(self._rollout_id)
        self._sum.incomplete = self._standing.is_incomplete(self._rollout_id)
        return self._sum

    def _add_files(self, files: list[CaptureFile], disk: Disk) -> bool:
        """Sum up from nothing; False: a file was cleared meanwhile."""
        self._sum = RolloutSummary(self._rollout_id)
        for file in files:
            if file.problem is not None:
                self._sum.unreadable = file.problem
                continue
            try:
                if not self._add_file(file.path, disk):
                    return False
            except FileNotFoundError:
                continue
            except OSError as error:
                self._sum.unreadable = error.strerror or str(error)
        return True

    def _add_file(self, path: Path, disk: Disk) -> bool:
        with reading(path, disk) as fd:
            for piece in pieces_behind(disk, fd):
                if piece.anew:
                    return False
                self._add_piece(piece)
        return True

    def _add_piece(self, piece: Piece) -> None:
        data, start = piece.data, 0
        self._sum.size_bytes += len(data)
        while start < len(data):
            end = data.find(b"\n", start)
            ended = end >= 0
            end = end if ended else len(data)
            if data[start : start + 1] == b"{" or data[start:end].strip():
                self._add(data, start, end, ended)
            start = end + 1

    def _add(self, data: bytes, start: int, end: int, ended: bool) -> None:
        if self._every_byte:
            line = data[start:end]
            row = facts_of(line)
        else:
            row, line = glance(data, start, end)
        if row is not None:
            self._count(row, line)
        elif ended or self._standing.claims is None or not self._is_pending_now():
            # Without its end under a live claim it is "not yet", not damage.
            self._sum.damaged += 1

    def _is_pending_now(self) -> bool:
        return self._store.is_pending(self._rollout_id)

    def _count(self, row: Facts, line: bytes) -> None:
        found = self._sum
        found.calls += 1
        if row.error_category is not None:
            known = found.errors.get(row.error_category, 0)
            found.errors[row.error_category] = known + 1
        if row.completed_at is not None:
            found.completed_at = max(found.completed_at or 0.0, row.completed_at)
        if row.response is not None:
            tokens = row.tokens(line)
            found.tokens_in = _sum(found.tokens_in, tokens.tokens_in)
            found.tokens_out = _sum(found.tokens_out, tokens.tokens_out)


def _sum(total: int | None, value: int | None) -> int | None:
    return total if value is None else (total or 0) + value


def _natural(text: str) -> list[tuple[int, str]]:
    """Sort key under which `9-0` comes before `10-0`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _NUMBER.split(text)]
