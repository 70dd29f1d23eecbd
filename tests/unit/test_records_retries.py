"""Calls that a later try took the place of are told by their requests."""

from typing import Any

from nemo_gym.records.model_call import ModelCallRecord, build
from nemo_gym.records.retries import request_digest, superseded_calls
from nemo_gym.records.totals import aggregate

ASKED = {"model": "m", "messages": [{"role": "user", "content": "q"}], "max_tokens": 9}


def calls(*exchanges: dict[str, Any]) -> list[ModelCallRecord]:
    usage = {"usage": {"input_tokens": 10, "output_tokens": 1}}
    whole = {"dialect": "messages", "request": ASKED, "response": usage}
    return [build({**whole, **exchange}, index) for index, exchange in enumerate(exchanges)]


def test_a_broken_stream_that_was_asked_again_without_streaming_is_superseded() -> None:
    streamed = {**ASKED, "stream": True, "stream_options": {"include_usage": True}}
    first, second = made = calls(
        {"request": streamed, "error_category": "stream_truncated"}, {"request": ASKED}
    )

    assert request_digest(first) == request_digest(second) is not None
    assert superseded_calls(made) == {0: 1}
    assert aggregate(made)["tokens_in"] == 20
    assert aggregate(call for call in made if call.call_index not in {0})["tokens_in"] == 10


def test_each_try_points_at_the_next_one() -> None:
    failed = {"error_category": "rate_limit"}

    assert superseded_calls(calls(failed, failed, {})) == {0: 1, 1: 2}


def test_a_call_that_went_well_is_superseded_by_nothing() -> None:
    assert superseded_calls(calls({}, {})) == {}
    assert superseded_calls(calls({}, {"error_category": "timeout"})) == {}


def test_another_question_is_no_try() -> None:
    failed = {"error_category": "timeout"}
    other = {"request": {**ASKED, "max_tokens": 10}}

    assert superseded_calls(calls(failed, other)) == {}
    assert superseded_calls(calls(failed, {"dialect": "responses"})) == {}


def test_requests_that_are_no_object_are_told_by_their_text() -> None:
    failed = {"request": None, "request_raw": "[1]", "error_category": "client_error"}
    made = calls(failed, {"request": None, "request_raw": "[1]"}, {"request": None})

    assert superseded_calls(made) == {0: 1}
    assert request_digest(made[2]) is None


def test_a_request_that_nests_deeply_is_told_like_any_other() -> None:
    deep: object = {"z": 1, "a": 2}
    for _ in range(3000):
        deep = [deep]
    failed, again, other = made = calls(
        {"request": {**ASKED, "x": deep}, "error_category": "timeout"},
        {"request": {"x": deep, **ASKED, "stream": True}},
        {"request": {**ASKED, "x": [deep]}},
    )

    assert request_digest(failed) == request_digest(again) != request_digest(other)
    assert superseded_calls(made) == {0: 1}
