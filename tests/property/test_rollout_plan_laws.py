"""Laws of the plan: every row times every repeat, once, in order, under ids of their own."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nemo_gym.errors import InvalidRow
from nemo_gym.rollouts.lines import (
    NotAnObject,
    join_members,
    raw_value,
    split_members,
    value_of,
)
from nemo_gym.rollouts.pairs import PairTable
from nemo_gym.rollouts.plan import PlannedRollout, Planner, PlanRequest, SourceRow

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), json_values, max_size=6)
extras = st.dictionaries(st.text().filter(lambda key: not key.startswith("_ng_")), json_values)


def source(row: dict[str, Any], number: int = 1) -> SourceRow:
    return SourceRow(f"rows.jsonl:{number}", json.dumps(row).encode())


def plan(rows: list[dict[str, Any]], **request: Any) -> list[PlannedRollout]:
    planner = Planner(PlanRequest(**{"agent": "solver", **request}))
    return list(planner.plan(source(row, number) for number, row in enumerate(rows, 1)))


@given(objects)
def test_an_object_goes_through_members_and_back_unchanged(value: dict[str, Any]) -> None:
    line = join_members(split_members(json.dumps(value).encode()))

    assert json.loads(line) == value
    assert b"\n" not in line


@given(objects, st.sampled_from([None, 1, "\t"]))
def test_an_object_written_over_several_lines_becomes_one_line(
    value: dict[str, Any], indent: Any
) -> None:
    line = join_members(split_members(json.dumps(value, indent=indent).encode()))

    assert b"\n" not in line
    assert json.loads(line) == value


@given(st.lists(st.sampled_from(["\ud83d", "\ude00", "a", "é"]), min_size=1).map("".join))
@example("\ud83d")
@example("\ude00 ")
def test_half_a_character_is_kept_as_the_escape_it_was(text: str) -> None:
    line = json.dumps({"text": text, text: 1}).encode()
    members = split_members(line)

    assert json.loads(join_members(members)) == json.loads(line)
    assert value_of(members["text"]) == json.loads(line)["text"]


def as_strict_object(data: bytes) -> dict[str, Any] | None:
    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        value = json.loads(data.decode(), parse_constant=refuse)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


pieces = st.sampled_from([b"{", b"}", b'"a"', b":", b",", b"[", b"]", b"1", b"NaN", b" ", b"\xff"])


@given(st.lists(pieces, max_size=8).map(b"".join) | objects.map(lambda o: json.dumps(o).encode()))
def test_bytes_are_read_as_an_object_exactly_when_they_are_one(data: bytes) -> None:
    try:
        found = json.loads(join_members(split_members(data)))
    except NotAnObject:
        found = None

    assert found == as_strict_object(data)


@pytest.mark.parametrize("text", ["[\ud83d]", '{"\ud83d": NaN}', '{"\ud83d"', "\ud83d"])
def test_half_a_character_excuses_nothing_else(text: str) -> None:
    line = text.encode("ascii", "backslashreplace")

    with pytest.raises(NotAnObject):
        split_members(line)


def test_numbers_beyond_64_bits_are_kept() -> None:
    assert raw_value({"n": 2**70}) == b'{"n": 1180591620717411303424}'


@given(
    st.lists(extras, max_size=6),
    st.integers(1, 4),
    st.none() | st.integers(0, 8),
)
def test_every_row_taken_is_planned_once_for_each_repeat_in_order(
    rows: list[dict[str, Any]], repeats: int, limit: int | None
) -> None:
    rows = [{**row, "agent_ref": None, "responses_create_params": {"input": []}} for row in rows]

    planned = plan(rows, num_repeats=repeats, limit=limit)

    taken = len(rows) if limit is None else min(limit, len(rows))
    assert [p.pair for p in planned] == [(t, r) for t in range(taken) for r in range(repeats)]


@given(extras, extras)
def test_what_a_row_brings_along_reaches_the_agent_untouched(
    row: dict[str, Any], params: dict[str, Any]
) -> None:
    row = {**row, "responses_create_params": params, "agent_ref": {"name": "own", "type": "x"}}

    (planned,) = plan([row])

    assert json.loads(planned.line) == {**row, "_ng_task_index": 0, "_ng_rollout_index": 0}
    assert planned.agent == "own"


@given(st.lists(st.sampled_from([None, "a", "b", "a-a1", "0-0", "1-0", "b-a2"]), max_size=5))
def test_no_two_attempts_of_a_plan_can_share_an_id(explicit: list[str | None]) -> None:
    rows: list[dict[str, Any]] = [
        {"responses_create_params": {}, "_ng_rollout_id": own} for own in explicit
    ]
    planned = []
    with contextlib.suppress(InvalidRow):
        planned = plan(rows)

    ids = [str(p.rollout_id(attempt)) for p in planned for attempt in range(4)]
    assert len(set(ids)) == len(ids)


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 2**40), st.integers(0, 2**20)), st.integers(0, 255), max_size=30
    )
)
def test_a_pair_table_is_a_dictionary_that_answers_zero(
    numbers: dict[tuple[int, int], int],
) -> None:
    table = PairTable()
    for pair, number in numbers.items():
        table[pair] = number

    assert {pair: table[pair] for pair in numbers} == numbers
    assert table[2**41, 0] == 0
