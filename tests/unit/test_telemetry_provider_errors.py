"""Errors of a provider: the kind that is told, and advice that mends that kind."""

import pytest

from nemo_gym.telemetry import live
from nemo_gym.telemetry.diagnosis import Diagnosis
from nemo_gym.telemetry.figures import FigureSnapshot, from_json, snapshot, to_json
from nemo_gym.telemetry.model_calls import model_call_started
from nemo_gym.telemetry.run_view import diagnose_run


@pytest.fixture(autouse=True)
def _nothing_counted() -> None:
    live._reset()


def answered(*statuses: int) -> None:
    for status in statuses:
        with model_call_started("openai", "m") as call:
            call.answered(status, stream=False)


def raised(kind: type[BaseException], tries: int = 1) -> None:
    """End a call as the forwarder does whose tries all end in `kind`."""
    with model_call_started("openai", "m") as call:
        for _ in range(tries - 1):
            call.retried(kind.__name__)
        call.broken_off(kind)


def looked() -> FigureSnapshot:
    [taken] = from_json(to_json([snapshot("cell")]))
    return taken


def found() -> Diagnosis:
    return diagnose_run([looked()])


def exception(name: str) -> type[BaseException]:
    return type(name, (Exception,), {})


@pytest.mark.parametrize(
    ("status", "told", "advice"),
    [
        (401, "all of them refused for the key (401, 403)", "check the model's key"),
        (403, "all of them refused for the key (401, 403)", "check the model's key"),
        (404, "all of them not found (404)", "check the model's name (--model) and its base URL"),
        (408, "all of them not answered in time", "idle_timeout_s"),
        (422, "all of them refused for what they asked (4xx)", "gym capture show"),
        (429, "all of them refused for their number (429)", "lower --concurrency"),
        (500, "all of them failures of the provider itself (5xx)", "lower --concurrency"),
        (504, "all of them not answered in time", "idle_timeout_s"),
    ],
)
def test_a_status_gets_the_advice_that_mends_it(status: int, told: str, advice: str) -> None:
    answered(200, *[status] * 3)

    assert found().bottleneck == "provider_errors"
    assert found().evidence[0] == f"75 % of the tries at the provider failed, {told}"
    assert advice in found().advice


@pytest.mark.parametrize(
    ("kind", "told", "advice"),
    [
        ("CallTimeout", "not answered in time", "idle_timeout_s"),
        ("ConnectFailed", "without a connection, or cut off", "can be reached"),
        ("ConnectionLost", "without a connection, or cut off", "can be reached"),
        ("CancelledError", "given up by who asked", "--rollout-timeout"),
        ("KeyError", "of another kind", "look at a failed call"),
    ],
)
def test_what_ends_a_call_gets_the_advice_that_mends_it(kind: str, told: str, advice: str) -> None:
    raised(exception(kind), tries=3)

    assert f"100 % of the tries at the provider failed, all of them {told}" in found().evidence
    assert advice in found().advice


@pytest.mark.parametrize("status", [401, 404, 422])
def test_less_concurrency_is_no_advice_where_it_mends_nothing(status: int) -> None:
    answered(*[status] * 5)

    assert "concurrency" not in found().advice


def test_of_several_kinds_the_most_frequent_one_is_told_with_its_part() -> None:
    answered(*[200] * 4, *[429] * 3, 401)

    said = "50 % of the tries at the provider failed, 75 % of them refused for their number (429)"
    assert found().evidence[0] == said


def test_tries_that_were_repeated_are_of_a_kind_too() -> None:
    for _ in range(4):
        with model_call_started("openai", "m") as call:
            call.retried("503")
            call.answered(200, stream=False)

    assert "all of them failures of the provider itself (5xx)" in found().evidence[0]


def test_errors_of_an_earlier_run_say_nothing_of_this_one() -> None:
    answered(*[401] * 50)
    before = looked()
    answered(*[429] * 5)

    after = diagnose_run([looked()], [before])
    assert "all of them refused for their number (429)" in after.evidence[0]
