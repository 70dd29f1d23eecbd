"""Which captures the rows of an output name: what an overwritten run leaves is its own.

Rows in; out comes whether the capture of a rollout is the one that a row was made with, and not
that of a later run under the same id. It takes one look at the rows, and eight bytes a rollout.
"""

import contextlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path

from nemo_gym.ids import RolloutId
from nemo_gym.rollouts.leftovers import read_members
from nemo_gym.rollouts.lines import Members, value_of
from nemo_gym.rollouts.outcome import CAPTURE_KEY
from nemo_gym.rollouts.paths import RunFiles
from nemo_gym.wire.json import JsonError, as_array, as_object, text_of

__all__ = ["NamedCaptures", "captures_named_by"]


class NamedCaptures:
    """The first model call of each of some rollouts: its id is given once and never again."""

    __slots__ = ("_hashes",)

    def __init__(self, calls: Iterable[tuple[str, str]] = ()) -> None:
        """Take pairs of a rollout's id and its call's."""
        self._hashes = array("q", sorted(map(hash, calls)))

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, call: tuple[RolloutId, str]) -> bool:
        """Say whether a call is the first that a row names for its rollout."""
        place = bisect_left(self._hashes, hash(call))
        return place < len(self._hashes) and self._hashes[place] == hash(call)


def captures_named_by(files: RunFiles) -> NamedCaptures:
    """Return what the finished and failed rollouts of a run name; what cannot be read is left."""
    return NamedCaptures(
        call
        for path in (files.output, files.failures, files.retried)
        for members in _rows(path)
        if (call := _first_call(members)) is not None
    )


def _rows(path: Path) -> Iterable[Members]:
    # Whoever overwrites need not be able to read, and a pipe would be waited for.
    with contextlib.suppress(OSError):
        if path.is_file():
            yield from read_members(path)


def _first_call(members: Members) -> tuple[str, str] | None:
    try:
        attached = as_object(value_of(members.get(CAPTURE_KEY, b"null"))) or {}
    except JsonError:  # somebody else's, or nested too deeply
        return None
    calls = as_array(attached.get("calls"))
    first = (as_object(calls[0]) if calls else None) or {}
    rollout_id, call_id = text_of(attached.get("rollout_id")), text_of(first.get("model_call_id"))
    return None if rollout_id is None or call_id is None else (rollout_id, call_id)
