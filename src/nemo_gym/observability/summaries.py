"""A capture directory at a glance: rollouts in, one small summary each out; payloads stay on disk.

Only the few fields that a summary needs are decoded, so thousands of rollouts cost little, and one
file is held at a time.
"""

import math
import re
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from nemo_gym.capture.marks import marked_rollouts
from nemo_gym.capture.reading import files_of_rollout
from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import parse_rollout_id
from nemo_gym.observability.raw_lines import RawLine, lines_of_files, row_in
from nemo_gym.records.exchange import Exchange
from nemo_gym.wire.json import as_object
from nemo_gym.wire.usage import TokenStats, token_stats, usage_of

__all__ = ["RolloutSummary", "is_row", "summarize", "summarize_all"]


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
    incomplete: bool = False
    """A row is known to be missing."""
    pending: bool = False
    """A call is under way."""
    unreadable: str | None = None
    """Why a file of it cannot be read; None: every one can. What follows in it is not counted."""
    completed_at: float | None = None
    """UTC Unix seconds at which the last call ended."""
    size_bytes: int = 0


class _Response(msgspec.Struct):
    usage: Any = None
    x_groq: Any = None


class _Row(msgspec.Struct):
    dialect: str | None = None
    error_category: str | None = None
    completed_at: float | None = None
    response: _Response | None = None


class _WithUsage(msgspec.Struct):
    usage: Any = None


class _Answer(msgspec.Struct):
    choices: list[_WithUsage] = []


class _Choices(msgspec.Struct):
    response: _Answer


_DECODER = msgspec.json.Decoder(_Row)
_CHOICES_DECODER = msgspec.json.Decoder(_Choices)
_NUMBER = re.compile(r"(\d+)")


def summarize_all(store: CaptureStore) -> Generator[RolloutSummary]:
    """Yield a summary of every rollout that has rows or is known to lack one, in natural order."""
    files: dict[str, list[Path]] = {name: [] for name in marked_rollouts(store.layout)}
    for file in store.files():
        if not file.is_cleared:
            files.setdefault(file.rollout_id, []).append(file.path)
    for rollout_id in sorted(files, key=_natural):
        yield _summary(store, rollout_id, sorted(files[rollout_id]))


def summarize(store: CaptureStore, rollout_id: str) -> RolloutSummary:
    """Return the summary of one rollout; raises `InvalidRolloutId`."""
    files = files_of_rollout(store.layout, parse_rollout_id(rollout_id))
    return _summary(store, rollout_id, files)


def _summary(store: CaptureStore, rollout_id: str, files: Iterable[Path]) -> RolloutSummary:
    summary = RolloutSummary(rollout_id)
    summary.pending = store.is_pending(rollout_id)
    summary.incomplete = store.is_incomplete(rollout_id)
    try:
        for line in lines_of_files(files):
            summary.size_bytes += len(line.body) + line.ended
            _add(summary, line)
    except OSError as error:
        summary.unreadable = error.strerror or str(error)
    return summary


def is_row(line: RawLine) -> bool:
    """Say whether a line is a whole row: a JSON object, with its end or, at the last, without."""
    return _decoded(line.body) is not None


def _add(summary: RolloutSummary, line: RawLine) -> None:
    row = _decoded(line.body)
    if row is None:
        # Without its end under a live claim it is "not yet", not damage.
        summary.damaged += 0 if summary.pending and not line.ended else 1
        return
    summary.calls += 1
    if row.error_category is not None:
        known = summary.errors.get(row.error_category, 0)
        summary.errors[row.error_category] = known + 1
    if row.completed_at is not None:
        summary.completed_at = max(summary.completed_at or 0.0, row.completed_at)
    if row.response is not None:
        tokens = _tokens(row.response, row.dialect, line.body)
        summary.tokens_in = _sum(summary.tokens_in, tokens.tokens_in)
        summary.tokens_out = _sum(summary.tokens_out, tokens.tokens_out)


def _tokens(response: _Response, dialect: str | None, body: bytes) -> TokenStats:
    usage = usage_of({"usage": response.usage, "x_groq": response.x_groq})
    if usage is None:
        # Seldom are they in a choice; reading every choice would double the cost of a listing.
        usage = _usage_in_choices(body)
    return token_stats(usage, dialect)


def _usage_in_choices(body: bytes) -> object:
    try:
        choices = _CHOICES_DECODER.decode(body).response.choices
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return usage_of(as_object((row_in(body) or {}).get("response")) or {})
    return usage_of({"choices": [{"usage": choice.usage} for choice in choices]})


def _decoded(body: bytes) -> _Row | None:
    try:
        if not body.isascii():
            body.decode()  # the decoder does not look into what it skips
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # A field of another type than expected, or JSON that only a lenient decoder takes.
        row = row_in(body)
        return None if row is None else _as_far_as_known(row)


def _as_far_as_known(row: dict[str, object]) -> _Row:
    """Return what is of its type in a row; the whole of it was decoded for that."""
    call = Exchange.of(row)
    completed = call.completed_at
    return _Row(
        call.dialect,
        call.error_category,
        completed if completed is not None and math.isfinite(completed) else None,
        None if call.response is None else _Response(usage_of(call.response)),
    )


def _sum(total: int | None, value: int | None) -> int | None:
    return total if value is None else (total or 0) + value


def _natural(text: str) -> list[tuple[int, str]]:
    """Sort key under which `9-0` comes before `10-0`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _NUMBER.split(text)]
