"""What the span of a rollout says of how it ended: the words of the metrics, an error where none
came to a reward."""

import asyncio
from pathlib import Path

import pytest

from nemo_gym.errors import TransportError
from nemo_gym.rollouts.collect import CollectOptions, StopSignal
from support.rollouts import FakeAgent, FakeAnswer, Row, collect, lines_of, rows_of
from support.spans import tracing_on

REPORTED = (
    b'{"error":{"type":"rollout_failure","failure_class":"model_error","message":"overloaded",'
    b'"provider_status":500}}'
)


async def ended_by(how: str, row: Row, stop: StopSignal) -> FakeAnswer:
    match how:
        case "good":
            return FakeAnswer(200, {**row, "reward": 0.25})
        case "crash":
            return FakeAnswer(500, b"boom")
        case "provider":
            return FakeAnswer(502, REPORTED)
        case "verify":
            return FakeAnswer(200, {**row})
        case "refused":
            return FakeAnswer(422, b"{}")
        case "broken":
            raise TransportError("connection lost")
        case "bug":
            raise KeyError(how)
        case "stopped":
            stop.stop()
        case _:
            pass  # as slow as can be
    await asyncio.sleep(30)
    raise AssertionError(how)


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ("good", "rewarded"),
        ("crash", "agent_error"),
        ("provider", "model_error"),
        ("verify", "verifier_error"),
        ("refused", "invalid_row"),
        ("broken", "connection"),
        ("bug", "agent_error"),
        ("slow", "timeout"),
        ("stopped", "cancelled"),
    ],
)
async def test_the_span_of_a_rollout_says_how_it_ended(
    how: str, outcome: str, tmp_path: Path
) -> None:
    stop, options = StopSignal(), CollectOptions(rollout_timeout_s=0.05 if how == "slow" else 60)
    agent = FakeAgent(lambda row: ended_by(how, row, stop))

    with tracing_on() as on:
        await collect(tmp_path / "x.jsonl", rows_of(1), agent, options=options, stop=stop)

    [root] = [ended for ended in on.ended if ended.name == "gym.rollout"]
    assert root.attributes["nemo.gym.rollout.outcome"] == outcome
    if outcome == "rewarded":
        assert (root.error, root.attributes["nemo.gym.rollout.reward"]) == (None, 0.25)
        assert "error.type" not in root.attributes
        return
    [failure] = lines_of(tmp_path / "x_failures.jsonl")
    assert root.error == root.attributes["error.type"] == failure["_ng_failure_class"] == outcome
    assert "nemo.gym.rollout.reward" not in root.attributes
