"""Rollout ids: grammar, round trips, and what must never get through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym import ids
from nemo_gym.errors import InvalidRolloutId

_safe = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,189}\Z")


@given(_safe, st.text(alphabet="abc/%?.", max_size=20))
def test_prefix_split_and_join_round_trip(text: str, rest: str) -> None:
    rollout_id = ids.parse_rollout_id(text)
    joined = ids.join_prefix(rollout_id, "/" + rest).encode()

    assert ids.split_prefix(joined) == (rollout_id, b"/" + rest.encode())


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "-rf", ".hidden", "a b", "a/b", "a%2fb", "a\x00", "é", "a" * 201, "0-0\n"],
)
def test_unsafe_ids_raise(text: str) -> None:
    with pytest.raises(InvalidRolloutId):
        ids.parse_rollout_id(text)


def test_an_encoded_slash_does_not_slip_through_the_prefix() -> None:
    with pytest.raises(InvalidRolloutId):
        ids.split_prefix(b"/ng-rollout/..%2f..%2fetc/v1/responses")


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 99))
def test_the_id_of_a_record_is_the_id_made_from_its_indices(t: int, r: int, a: int) -> None:
    record = {"_ng_task_index": t, "_ng_rollout_index": r, "_ng_attempt_index": a}

    assert ids.rollout_id_of_record(record) == ids.make_rollout_id(t, r, a)


def test_attempts_have_a_suffix_with_explicit_ids_too() -> None:
    assert ids.make_rollout_id(3, 1) == "3-1"
    assert ids.make_rollout_id(3, 1, 2) == "3-1-a2"
    assert ids.make_rollout_id(3, 1, 2, "mine") == "mine-a2"


def test_an_explicit_id_leaves_room_for_the_attempt() -> None:
    assert len(ids.make_rollout_id(0, 0, 999, "x" * 190)) <= 200
    with pytest.raises(InvalidRolloutId):
        ids.make_rollout_id(0, 0, 0, "x" * 191)


def test_an_explicit_id_of_a_record_comes_before_its_indices() -> None:
    indices = {"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_rollout_id": "mine"}

    assert ids.rollout_id_of_record(indices) == "mine"
    assert ids.rollout_id_of_record(indices | {"_ng_attempt_index": 2}) == "mine-a2"


def test_an_empty_explicit_id_is_no_id_rather_than_that_of_another_rollout() -> None:
    with pytest.raises(InvalidRolloutId):
        ids.rollout_id_of_record(
            {"_ng_task_index": 3, "_ng_rollout_index": 1, "_ng_rollout_id": ""}
        )


def test_a_record_without_indices_has_no_id() -> None:
    assert ids.rollout_id_of_record({"_ng_task_index": True, "_ng_rollout_index": 0}) is None
    assert ids.rollout_id_of_record({}) is None


def test_a_bare_prefix_is_refused() -> None:
    with pytest.raises(InvalidRolloutId):
        ids.split_prefix(b"/ng-rollout//v1/responses")


def test_the_current_rollout_is_set_for_the_block_only() -> None:
    with ids.with_current_rollout_id(ids.RolloutId("7-0")):
        inside = ids.current_rollout_id()

    assert inside == "7-0"
    assert ids.current_rollout_id() is None
