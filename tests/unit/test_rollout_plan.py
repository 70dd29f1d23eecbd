"""Who runs what under which id, and what is said of a row that cannot be used."""

import json
from typing import Any

import pytest

from nemo_gym.errors import ConfigMistake, InvalidRow
from nemo_gym.rollouts.plan import PlannedRollout, Planner, PlanRequest, SourceRow

ROW: dict[str, Any] = {"responses_create_params": {"input": "hi"}}


def plan(*rows: dict[str, Any] | bytes, **request: Any) -> list[PlannedRollout]:
    sources = (
        SourceRow(f"rows.jsonl:{n}", row if isinstance(row, bytes) else json.dumps(row).encode())
        for n, row in enumerate(rows, 1)
    )
    return list(Planner(PlanRequest(**{"agent": "solver", **request})).plan(sources))


def test_a_row_s_own_agent_comes_before_the_one_asked_for() -> None:
    planned = plan(ROW, {**ROW, "agent_ref": {"name": "own"}})

    assert [p.agent for p in planned] == ["solver", "own"]
    assert json.loads(planned[0].line)["agent_ref"] == {"name": "solver"}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (b'{"responses_create_params": {}', "truncated"),
        (b"[1]", "not a JSON object"),
        (b'{"responses_create_params": {}, "score": NaN}', "invalid character"),
        (b'{"responses_create_params": {"input": "\xff"}}', "not UTF-8"),
        (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deeply"),
        (rb'{"h": "\ud83d", "a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deeply"),
        ({}, "responses_create_params is missing"),
        ({"responses_create_params": "hi"}, "responses_create_params is not an object"),
        ({**ROW, "agent_ref": {"nom": "x"}}, 'agent_ref is {"nom": "x"}, which names no agent'),
        ({**ROW, "agent_ref": "solver"}, 'agent_ref is "solver", which names no agent'),
        ({**ROW, "_ng_rollout_id": 7}, "_ng_rollout_id is not a string"),
        ({**ROW, "_ng_rollout_id": "../x"}, "is not a rollout id"),
        ({**ROW, "_ng_rollout_id": "x" * 191}, "191 characters"),
        ({**ROW, "_ng_task_index": -1}, "_ng_task_index is -1"),
        ({**ROW, "_ng_rollout_index": True}, "_ng_rollout_index is true"),
        ({**ROW, "agent_ref": {"name": "sovler"}}, "there is no agent 'sovler'"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_by_file_and_line(
    row: dict[str, Any] | bytes, said: str
) -> None:
    with pytest.raises(InvalidRow) as told:
        plan(ROW, row, agents=frozenset({"solver"}))

    assert said in told.value.what
    assert told.value.where == "rows.jsonl:2"


def test_a_row_without_an_agent_is_told_which_ones_there_are() -> None:
    with pytest.raises(InvalidRow) as told:
        plan(ROW, agent=None, agents=frozenset({"b_agent", "a_agent"}))

    assert told.value.mend == "give --agent NAME: a_agent, b_agent"


def test_an_agent_that_does_not_exist_is_a_mistake_of_the_option() -> None:
    with pytest.raises(InvalidRow) as told:
        plan(ROW, agents=frozenset({"other"}))

    assert told.value.where == "--agent"


def test_an_agent_that_cannot_work_is_refused_where_a_row_goes_to_it_and_only_there() -> None:
    misfits = {"broken": ConfigMistake("broken calls nobody")}

    assert len(plan(ROW, misfits=misfits)) == 1
    with pytest.raises(ConfigMistake, match="broken calls nobody"):
        plan(ROW, {**ROW, "agent_ref": {"name": "broken"}}, misfits=misfits)


def test_equal_rows_are_different_tasks() -> None:
    assert [p.pair for p in plan(ROW, ROW)] == [(0, 0), (1, 0)]


def test_rows_with_the_same_id_are_refused() -> None:
    row = {**ROW, "_ng_rollout_id": "mine"}

    with pytest.raises(InvalidRow, match="'mine' is taken by an earlier row"):
        plan(row, row)


@pytest.mark.parametrize(
    ("first", "second"),
    [({}, {}), ({"_ng_rollout_id": "a"}, {"_ng_rollout_id": "b"}), ({"_ng_rollout_id": "a"}, {})],
    ids=["neither named", "both named", "the first named"],
)
def test_rows_with_the_same_indices_are_refused(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    row = {**ROW, "_ng_task_index": 4, "_ng_rollout_index": 1}

    with pytest.raises(InvalidRow, match="'4-1' is taken by an earlier row"):
        plan(row | first, row | second)


@pytest.mark.parametrize("text", ['["HALF"]', '"HALF"', '{"a": "HALF"', '{"a": NaN, "b": "HALF"}'])
def test_half_a_character_is_no_excuse_for_a_row_that_is_no_object(text: str) -> None:
    with pytest.raises(InvalidRow):
        plan(text.replace("HALF", chr(92) + "ud83d").encode())


def test_a_row_with_its_own_id_cannot_be_repeated() -> None:
    with pytest.raises(InvalidRow, match="cannot be repeated"):
        plan({**ROW, "_ng_rollout_id": "mine"}, num_repeats=2)


def test_a_row_that_was_planned_before_keeps_its_indices() -> None:
    planned = plan({**ROW, "_ng_task_index": 7, "_ng_rollout_index": 3}, ROW)

    assert [p.pair for p in planned] == [(7, 3), (1, 0)]


def test_an_attempt_of_an_earlier_run_is_not_taken_along() -> None:
    (planned,) = plan({**ROW, "_ng_attempt_index": 2})

    assert "_ng_attempt_index" not in json.loads(planned.line)
    assert planned.rollout_id(2) == "0-0-a2"


def test_parameters_are_laid_over_the_row_key_by_key() -> None:
    row = {"responses_create_params": {"temperature": 1, "reasoning": {"effort": "low", "x": 1}}}
    params = {"temperature": 0.5, "reasoning": {"effort": "high"}, "metadata": {"a": "b"}}

    (planned,) = plan(row, params=params)

    assert json.loads(planned.line)["responses_create_params"] == {
        "temperature": 0.5,
        "reasoning": {"effort": "high", "x": 1},
        "metadata": {"a": "b"},
    }


def test_the_plan_reads_no_row_beyond_its_limit() -> None:
    assert [p.pair for p in plan(ROW, b"not json", limit=1)] == [(0, 0)]
