"""Rows and what was asked for in, planned rollouts out, one at a time.

Decides who runs what under which id, and checks every row on the way: a mistake in row 900 is told
before row 1 costs anything. No files, no clock; keeps one byte a rollout and the explicit ids.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from nemo_gym.errors import InvalidRolloutId, InvalidRow, UserMistake
from nemo_gym.ids import (
    ATTEMPT_INDEX_KEY,
    ROLLOUT_ID_KEY,
    ROLLOUT_INDEX_KEY,
    TASK_INDEX_KEY,
    RolloutId,
    make_rollout_id,
)
from nemo_gym.rollouts.lines import (
    Members,
    NotAnObject,
    count_of,
    is_object,
    join_members,
    members_of,
    raw_value,
    split_members,
    text_of,
)
from nemo_gym.rollouts.pairs import PairTable

__all__ = [
    "AGENT_REF_KEY",
    "PARAMS_KEY",
    "PlanRequest",
    "PlannedRollout",
    "Planner",
    "SourceRow",
]

AGENT_REF_KEY = "agent_ref"
PARAMS_KEY = "responses_create_params"

_ATTEMPT_SUFFIX = re.compile(r"-a\d+\Z")
_OF_THE_PLAN = (AGENT_REF_KEY, TASK_INDEX_KEY, ROLLOUT_INDEX_KEY, ATTEMPT_INDEX_KEY)


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One row of an input file, not parsed yet."""

    place: str
    """`file:line`."""
    data: bytes


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What the user asked for."""

    agent: str | None = None
    """Agent of the rows that name none in `agent_ref`."""
    agents: frozenset[str] | None = None
    """Agents that exist; None when that is not known, and any name is taken."""
    misfits: Mapping[str, UserMistake] = field(default_factory=dict[str, UserMistake])
    """Agents that cannot work as things are configured, and why."""
    num_repeats: int = 1
    limit: int | None = None
    """Most rows taken; None takes all."""
    params: Mapping[str, object] = field(default_factory=dict[str, object])
    """Laid over each row's `responses_create_params`, nested objects key by key."""


@dataclass(frozen=True, slots=True)
class PlannedRollout:
    """One rollout to run."""

    task_index: int
    rollout_index: int
    agent: str
    agent_ref: bytes
    """The row's reference to its agent, as a JSON object."""
    explicit_id: str | None
    line: bytes
    """The materialised row as a JSON object: what goes to the agent's `/run`."""

    @property
    def pair(self) -> tuple[int, int]:
        """Return what identifies the rollout within its run."""
        return self.task_index, self.rollout_index

    def rollout_id(self, attempt_index: int = 0) -> RolloutId:
        """Return the id of one attempt at this rollout."""
        return make_rollout_id(self.task_index, self.rollout_index, attempt_index, self.explicit_id)


class Planner:
    """Plans the rollouts of one run and remembers which ids are taken."""

    def __init__(self, request: PlanRequest) -> None:
        self.request = request
        self.tasks = 0
        """Rows taken so far."""
        self.row_keys: set[str] = set()
        """Top-level keys that rows carried."""
        self.explicit_ids: set[str] = set()
        self.task_range: tuple[int, int] | None = None
        """Lowest and highest task index of the rollouts whose ids are made of indices."""
        self._taken = PairTable()
        self._explicit_bases: set[str] = set()

    def plan(self, rows: Iterable[SourceRow]) -> Iterator[PlannedRollout]:
        """Yield the rollouts of `rows`, all repeats of a row before the next row.

        Raises `InvalidRow` with the place of the row that cannot be used, and the mistake told of
        an agent that cannot work.
        """
        for row in rows:
            if self.request.limit is not None and self.tasks >= self.request.limit:
                return
            try:
                yield from self._rollouts_of(row)
            except NotAnObject as error:
                raise InvalidRow(
                    str(error), where=row.place, mend="a row is one JSON object on one line"
                ) from error
            self.tasks += 1

    def _rollouts_of(self, row: SourceRow) -> Iterator[PlannedRollout]:
        members = split_members(row.data)
        self.row_keys.update(members)
        agent, agent_ref = self._agent_of(members, row.place)
        explicit = _explicit_id_of(members, row.place)
        task = self._own_index(members, TASK_INDEX_KEY, row.place)
        repeat = self._own_index(members, ROLLOUT_INDEX_KEY, row.place)
        self._check_repeatable(explicit, repeat, row.place)
        self._merge_params(members, row.place)
        for key in _OF_THE_PLAN:
            members.pop(key, None)
        members[AGENT_REF_KEY] = agent_ref
        task_index = self.tasks if task is None else task
        members[TASK_INDEX_KEY] = raw_value(task_index)
        for rollout_index in range(self.request.num_repeats) if repeat is None else (repeat,):
            members[ROLLOUT_INDEX_KEY] = raw_value(rollout_index)
            planned = PlannedRollout(
                task_index, rollout_index, agent, agent_ref, explicit, join_members(members)
            )
            self._take(planned, row.place)
            yield planned

    def _agent_of(self, members: Members, place: str) -> tuple[str, bytes]:
        own = members.get(AGENT_REF_KEY)
        if own is None or own == b"null":
            name, ref = self.request.agent, raw_value({"name": self.request.agent})
        else:
            name, ref = text_of(members_of(own).get("name")), own
            if not name:
                raise InvalidRow(
                    f"{AGENT_REF_KEY} is {own[:40].decode(errors='replace')}, which names no agent",
                    where=place,
                    mend=f'write {{"{AGENT_REF_KEY}": {{"name": …}}}}{self._known_agents()}, '
                    "or leave it out and give --agent NAME",
                )
        if not name:
            raise InvalidRow(
                'the row names no agent (agent_ref: {"name": …}) and no --agent was given',
                where=place,
                mend=f"give --agent NAME{self._known_agents()}",
            )
        if self.request.agents is not None and name not in self.request.agents:
            raise InvalidRow(
                f"there is no agent {name!r}",
                where=place if own is not None else "--agent",
                mend=f"use an agent of this run{self._known_agents()}",
            )
        if name in self.request.misfits:
            raise self.request.misfits[name]
        return name, ref

    def _known_agents(self) -> str:
        return f": {', '.join(sorted(self.request.agents))}" if self.request.agents else ""

    def _own_index(self, members: Members, key: str, place: str) -> int | None:
        raw = members.get(key)
        if raw is None or raw == b"null":
            return None
        index = count_of(raw)
        if index is None:
            raise InvalidRow(
                f"{key} is {raw[:40].decode(errors='replace')}",
                where=place,
                mend="use a whole number, zero or more, or leave it out",
            )
        return index

    def _check_repeatable(self, explicit: str | None, repeat: int | None, place: str) -> None:
        if self.request.num_repeats == 1 or (explicit is None and repeat is None):
            return
        key = ROLLOUT_ID_KEY if explicit is not None else ROLLOUT_INDEX_KEY
        raise InvalidRow(
            f"a row with its own {key} cannot be repeated",
            where=place,
            mend=f"leave --num-repeats out, or take {key} out of the rows",
        )

    def _merge_params(self, members: Members, place: str) -> None:
        params = members.get(PARAMS_KEY)
        if params is None or not is_object(params):
            raise InvalidRow(
                f"{PARAMS_KEY} is {'missing' if params is None else 'not an object'}",
                where=place,
                mend=f'write {{"{PARAMS_KEY}": {{"input": [{{"role": "user", "content": …}}]}}}}',
            )
        if self.request.params:
            members[PARAMS_KEY] = _laid_over(params, self.request.params)

    def _take(self, planned: PlannedRollout, place: str) -> None:
        """Take the ids of a rollout; raises `InvalidRow` when another row has them."""
        taken = self._taken[planned.pair] != 0
        if planned.explicit_id is None:
            if taken or self._is_explicit(planned.rollout_id()):
                raise _collision(planned.rollout_id(), place)
            low, high = self.task_range or (planned.task_index, planned.task_index)
            self.task_range = min(low, planned.task_index), max(high, planned.task_index)
        else:
            self._take_explicit(planned.explicit_id, place)
            if taken:
                raise _collision(f"{planned.task_index}-{planned.rollout_index}", place)
        self._taken[planned.pair] = 1 if planned.explicit_id is None else 2

    def _is_explicit(self, rollout_id: str) -> bool:
        return rollout_id in self.explicit_ids or rollout_id in self._explicit_bases

    def _take_explicit(self, explicit: str, place: str) -> None:
        base = _ATTEMPT_SUFFIX.sub("", explicit)
        if self._is_explicit(explicit) or base in self.explicit_ids:
            raise _collision(explicit, place)
        if (pair := _pair_of(base)) is not None and self._taken[pair] == 1:
            raise _collision(explicit, place)
        self.explicit_ids.add(explicit)
        if base != explicit:
            # `x-a1` is also the second attempt at `x`.
            self._explicit_bases.add(base)


def _collision(rollout_id: str, place: str) -> InvalidRow:
    return InvalidRow(
        f"the rollout id {rollout_id!r} is taken by an earlier row",
        where=place,
        mend=f"give each row a {ROLLOUT_ID_KEY} of its own, or none",
    )


def _explicit_id_of(members: Members, place: str) -> str | None:
    raw = members.get(ROLLOUT_ID_KEY)
    if raw is None or raw == b"null":
        return None
    text = text_of(raw)
    if text is None:
        raise InvalidRow(
            f"{ROLLOUT_ID_KEY} is not a string",
            where=place,
            mend="write it in quotes, or leave it out",
        )
    try:
        make_rollout_id(0, 0, 0, text)
    except InvalidRolloutId as error:
        raise InvalidRow(error.what, where=place, mend=error.mend) from error
    return text


def _pair_of(rollout_id: str) -> tuple[int, int] | None:
    """Return the indices that an id spells; None when it is not made of indices."""
    task, dash, rollout = rollout_id.partition("-")
    plain = dash and all(t.isascii() and t.isdigit() and str(int(t)) == t for t in (task, rollout))
    return (int(task), int(rollout)) if plain else None


def _laid_over(raw: bytes, over: Mapping[str, object]) -> bytes:
    """Return the object with `over` laid over it; nested objects are merged key by key."""
    members = split_members(raw)
    for key, value in over.items():
        below = members.get(key)
        nested = _as_mapping(value)
        if nested is not None and below is not None and is_object(below):
            members[key] = _laid_over(below, nested)
        else:
            members[key] = raw_value(value)
    return join_members(members)


def _as_mapping(value: object) -> Mapping[str, object] | None:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else None
