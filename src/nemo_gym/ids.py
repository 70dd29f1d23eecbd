"""Rollout ids: made, parsed and carried in paths. Text and numbers in, text out; no I/O.

One rollout has one id, `{task}-{rollout}` or the caller's own `_ng_rollout_id`, then `-a{n}` for
attempt n >= 1. The id names capture files and sits in URLs, so its grammar is narrow and matched
whole: `[A-Za-z0-9][A-Za-z0-9._-]{0,199}`.
"""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from typing import NewType

from nemo_gym.errors import InvalidRolloutId

__all__ = [
    "ATTEMPT_INDEX_KEY",
    "CURRENT_ROLLOUT",
    "ROLLOUT_ID_KEY",
    "ROLLOUT_INDEX_KEY",
    "ROLLOUT_PATH_PREFIX",
    "TASK_INDEX_KEY",
    "RolloutId",
    "current_rollout_id",
    "join_prefix",
    "make_rollout_id",
    "parse_rollout_id",
    "rollout_id_of_record",
    "split_prefix",
    "with_current_rollout_id",
]

RolloutId = NewType("RolloutId", str)

ROLLOUT_PATH_PREFIX = "ng-rollout"
TASK_INDEX_KEY = "_ng_task_index"
ROLLOUT_INDEX_KEY = "_ng_rollout_index"
ATTEMPT_INDEX_KEY = "_ng_attempt_index"
ROLLOUT_ID_KEY = "_ng_rollout_id"

_GRAMMAR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_PREFIX = f"/{ROLLOUT_PATH_PREFIX}/".encode("ascii")
# Room for `-a<n>` behind an explicit id, so that an attempt never leaves the grammar.
_EXPLICIT_LIMIT = 190

CURRENT_ROLLOUT: ContextVar[RolloutId | None] = ContextVar("nemo_gym_rollout_id", default=None)
"""For what cannot afford `with_current_rollout_id`: every model call."""


def parse_rollout_id(text: str) -> RolloutId:
    """Return `text` as a rollout id, or raise `InvalidRolloutId`."""
    if _GRAMMAR.fullmatch(text) is None:
        shown = text if len(text) <= 60 else f"{text[:60]}… ({len(text)} characters)"
        raise InvalidRolloutId(
            f"{shown!r} is not a rollout id",
            mend="use letters, digits, '.', '_' and '-', at most 200, the first one a letter or "
            "a digit, like '3-0' or '3-0-a1'",
        )
    return RolloutId(text)


def make_rollout_id(
    task_index: int, rollout_index: int, attempt_index: int = 0, explicit: str | None = None
) -> RolloutId:
    """Return the id of one attempt at one rollout.

    `explicit` is the caller's own id (at most 190 characters); it replaces `{task}-{rollout}`.
    """
    if explicit is not None and len(explicit) > _EXPLICIT_LIMIT:
        raise InvalidRolloutId(
            f"a {ROLLOUT_ID_KEY} of {len(explicit)} characters is too long",
            mend=f"use at most {_EXPLICIT_LIMIT} characters",
        )
    base = f"{task_index}-{rollout_index}" if explicit is None else explicit
    return parse_rollout_id(base if attempt_index < 1 else f"{base}-a{attempt_index}")


def rollout_id_of_record(record: Mapping[str, object]) -> RolloutId | None:
    """Return the id that a task row or rollout record carries in its `_ng_*` keys.

    None when it carries neither an explicit id nor both indices: such a record is not correlated.
    """
    explicit = record.get(ROLLOUT_ID_KEY)
    attempt = _index(record.get(ATTEMPT_INDEX_KEY)) or 0
    if isinstance(explicit, str):
        return make_rollout_id(0, 0, attempt, explicit)
    task, rollout = _index(record.get(TASK_INDEX_KEY)), _index(record.get(ROLLOUT_INDEX_KEY))
    if task is None or rollout is None:
        return None
    return make_rollout_id(task, rollout, attempt)


def split_prefix(raw_path: bytes) -> tuple[RolloutId | None, bytes]:
    """Split `/ng-rollout/<id>/rest` into the id and `/rest`; `(None, raw_path)` without a prefix.

    Works on the raw, undecoded path: a percent sign is outside the grammar, so an encoded slash or
    dot cannot slip through. Raises `InvalidRolloutId` for a prefix with an id outside the grammar.
    """
    if not raw_path.startswith(_PREFIX):
        return None, raw_path
    text, slash, rest = raw_path[len(_PREFIX) :].partition(b"/")
    return parse_rollout_id(text.decode("latin-1")), slash + rest


def join_prefix(rollout_id: RolloutId | None, path: str) -> str:
    """Put the prefix of `rollout_id` before `path` (it begins with a slash); None adds nothing."""
    return path if rollout_id is None else f"/{ROLLOUT_PATH_PREFIX}/{rollout_id}{path}"


def current_rollout_id() -> RolloutId | None:
    """Return the rollout that the running request belongs to, where one was named."""
    return CURRENT_ROLLOUT.get()


def with_current_rollout_id(rollout_id: RolloutId | None) -> AbstractContextManager[None]:
    """Carry `rollout_id` for everything awaited inside."""
    return _Carried(rollout_id)


class _Carried:
    """Written out, since `contextmanager` costs every request 1.5 us more."""

    __slots__ = ("_rollout_id", "_token")

    _token: Token[RolloutId | None]

    def __init__(self, rollout_id: RolloutId | None) -> None:
        self._rollout_id = rollout_id

    def __enter__(self) -> None:
        self._token = CURRENT_ROLLOUT.set(self._rollout_id)

    def __exit__(self, *_: object) -> None:
        CURRENT_ROLLOUT.reset(self._token)


def _index(value: object) -> int | None:
    """Return a whole number that is not negative; a bool is not an index."""
    return value if type(value) is int and value >= 0 else None
