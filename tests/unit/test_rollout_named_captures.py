"""Which captures the rows of an output name: by the first call of each rollout."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.ids import RolloutId
from nemo_gym.rollouts.named_captures import NamedCaptures, captures_named_by
from nemo_gym.rollouts.paths import RunFiles

calls = st.tuples(
    st.from_regex(r"[0-9]{1,2}-[0-9]", fullmatch=True).map(RolloutId),
    st.text("abcdef0123456789", max_size=4),
)


@given(st.sets(calls), st.sets(calls))
def test_what_was_named_is_known_and_nothing_else(
    named: set[tuple[RolloutId, str]], others: set[tuple[RolloutId, str]]
) -> None:
    known = NamedCaptures(named)

    assert {call for call in named | others if call in known} == named
    assert len(known) == len(named)


def _row(rollout_id: object, *call_ids: object) -> str:
    calls = [{"model_call_id": call_id, "call_index": n} for n, call_id in enumerate(call_ids)]
    return json.dumps({"ng_model_call_capture": {"rollout_id": rollout_id, "calls": calls}}) + "\n"


def test_rows_with_and_without_a_reward_name_the_first_of_their_calls(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "x.jsonl")
    files.output.write_text(_row("0-0", "a", "b") + '{"reward": 1.0}\n' + _row("1-0", "c"))
    files.failures.write_text(_row("2-0", "d"))
    files.retried.write_text(_row("3-0-a1", "e"))

    known = captures_named_by(files)

    assert len(known) == 4
    named = (("0-0", "a"), ("1-0", "c"), ("2-0", "d"), ("3-0-a1", "e"))
    assert all((RolloutId(rollout), call) in known for rollout, call in named)
    assert (RolloutId("0-0"), "b") not in known


@pytest.mark.parametrize(
    "row",
    [
        *("", "\n", "no JSON\n", "[1]\n", _row("0-0"), _row(7, "a"), _row("0-0", None)),
        '{"ng_model_call_capture": null}\n',
        '{"ng_model_call_capture": {"calls": [3]}}\n',
        '{"ng_model_call_capture": {"calls": ' + "[" * 9999 + "]" * 9999 + "}}\n",
        '{"ng_model_call_capture": {"rollout_id": "0-0", "calls": [{"model_call_id": "torn',
    ],
)
def test_rows_that_name_no_call_are_left_out(tmp_path: Path, row: str) -> None:
    files = RunFiles(tmp_path / "x.jsonl")
    files.output.write_text(row + "\n" + _row("1-0", "c"))

    known = captures_named_by(files)

    assert len(known) == 1
    assert (RolloutId("1-0"), "c") in known


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "x.jsonl")
    os.mkfifo(files.output)
    files.failures.mkdir()

    assert len(captures_named_by(files)) == 0
