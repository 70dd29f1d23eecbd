"""How an agent's answer is read: a reward, or a failure with a class."""

import json
from typing import Any

import pytest

from nemo_gym.rollouts.lines import split_members
from nemo_gym.rollouts.outcome import Failure, Rewarded, judge, numbers_of
from nemo_gym.rollouts.sizes import sizes_of


def answer(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize("reward", [0, 1, -1, 0.5, 1e3])
def test_a_number_under_reward_is_a_reward(reward: float) -> None:
    outcome = judge(200, answer({"reward": reward}))

    assert isinstance(outcome, Rewarded)
    assert outcome.reward == reward


@pytest.mark.parametrize("reward", [None, "1", True, [1], {}])
def test_an_answer_whose_reward_is_no_number_is_the_verifier_s_failure(reward: object) -> None:
    outcome = judge(200, answer({"reward": reward}))

    assert isinstance(outcome, Failure)
    assert outcome.failure_class == "verifier_error"


def test_an_answer_without_a_reward_is_the_verifier_s_failure() -> None:
    outcome = judge(200, b"{}")

    assert isinstance(outcome, Failure)
    assert outcome.failure_class == "verifier_error"


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b'{"reward": 1', b'{"reward": 1e999}x'])
def test_an_answer_that_is_no_object_is_the_agent_s_failure(body: bytes) -> None:
    outcome = judge(200, body)

    assert isinstance(outcome, Failure)
    assert outcome.failure_class == "agent_error"


def test_a_reward_that_is_not_finite_is_no_reward() -> None:
    outcome = judge(200, b'{"reward": 1e999}')

    assert isinstance(outcome, Failure)
    assert outcome.failure_class == "verifier_error"


def test_a_failure_that_the_agent_reports_keeps_its_class_and_the_provider_s_words() -> None:
    reported = {
        "type": "rollout_failure",
        "failure_class": "model_error",
        "message": "policy_model answered 429",
        "provider_status": 429,
        "provider_body": '{"error": "slow down"}',
    }

    outcome = judge(500, answer({"error": reported}))

    assert outcome == Failure(
        "model_error", "policy_model answered 429", 500, 429, '{"error": "slow down"}'
    )


def test_what_the_provider_said_may_be_json_itself() -> None:
    reported = {"type": "rollout_failure", "failure_class": "model_error", "message": "no"}

    outcome = judge(500, answer({"error": {**reported, "provider_body": {"error": "slow"}}}))

    assert isinstance(outcome, Failure)
    assert json.loads(outcome.provider_body or "") == {"error": "slow"}


@pytest.mark.parametrize(
    ("status", "body", "failure_class"),
    [
        (500, b"Internal Server Error", "agent_error"),
        (500, b'{"error": {"type": "rollout_fai', "agent_error"),
        (502, b'{"error": {"message": "no type"}}', "agent_error"),
        (500, b'{"error": {"type": "rollout_failure", "failure_class": "odd"}}', "agent_error"),
        (404, b'{"detail": "Not Found"}', "agent_error"),
        (422, b'{"detail": []}', "invalid_row"),
        (302, b"", "agent_error"),
    ],
)
def test_any_other_status_is_a_failure(status: int, body: bytes, failure_class: str) -> None:
    outcome = judge(status, body)

    assert isinstance(outcome, Failure)
    assert (outcome.failure_class, outcome.status) == (failure_class, status)


def test_a_long_text_is_cut_and_says_so() -> None:
    outcome = judge(500, b"x" * 100_000)

    assert isinstance(outcome, Failure)
    assert len(outcome.message) < 10_000
    assert "more characters" in outcome.message


def row(**fields: Any) -> dict[str, bytes]:
    return split_members(answer({"reward": 1, **fields}))


def test_numeric_fields_that_the_environment_added_are_metrics() -> None:
    members = row(steps=3, solved=True, note="x", level=4, ng_timing={"latency_ms": 12.5})

    numbers = numbers_of(members, "a", 5, frozenset({"level", "reward"}))

    assert numbers.values == {"reward": 1.0, "steps": 3.0, "solved": 1.0}
    assert (numbers.agent, numbers.task, numbers.latency_ms) == ("a", 5, 12.5)


def test_parts_of_a_reward_are_metrics_of_their_own() -> None:
    numbers = numbers_of(row(reward_components={"format": 0.5, "bad": "x"}), "a", 0)

    assert numbers.values == {"reward": 1.0, "reward_components/format": 0.5}


def test_tokens_come_from_the_usage_of_the_response() -> None:
    usage = {"input_tokens": 7, "output_tokens": 0, "output_tokens_details": {}}

    numbers = numbers_of(row(response={"usage": usage}), "a", 0)

    assert numbers.tokens == {"tokens_in": 7, "tokens_out": 0}


def test_tokens_come_from_the_capture_where_there_is_one() -> None:
    metrics = {"tokens_in": 100, "tokens_out": None, "num_calls": 3}
    members = row(
        response={"usage": {"input_tokens": 7, "output_tokens": 1}},
        ng_model_call_capture={"metrics": metrics},
    )

    assert numbers_of(members, "a", 0).tokens == {"tokens_in": 100}


def test_sizes_count_items_turns_and_tool_calls() -> None:
    kinds = ["reasoning", "function_call", "function_call", "function_call_output"]
    kinds += ["function_call_output", "message"]
    members = row(
        responses_create_params={"input": [{"role": "user"}, {"role": "user"}]},
        response={"output": [{"type": kind} for kind in kinds]},
    )

    assert sizes_of(members) == (2, 6, 2, 2)


def test_a_text_as_input_is_one_item() -> None:
    assert sizes_of(row(responses_create_params={"input": "hi"})) == (1, 0, 0, 0)
