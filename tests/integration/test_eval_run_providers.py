"""Providers that fail in every way, seen from the end of a run: its failures and its exit code."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from support.eval_command import environ_of
from support.eval_servers import COUNTER, provider_process
from support.gym_command import Ended, gym
from support.rollouts import files_of, lines_of

TASKS = 4
# As a user would set them for a provider whose failures are not worth waiting for.
IMPATIENT = (
    "++policy_model.responses_api_models.openai_model.max_tries=2",
    "++policy_model.responses_api_models.openai_model.retry_for_s=2",
    "++policy_model.responses_api_models.openai_model.idle_timeout_s=1",
)


def _evaluate(folder: Path, origin: str, row: dict[str, Any], *more: str) -> Ended:
    task = {"responses_create_params": {"input": [{"role": "user", "content": "hi"}]}, **row}
    (folder / "rows.jsonl").write_text((json.dumps(task) + "\n") * TASKS)
    return gym(
        *("eval", "run", "--resources-server", "counter", "--search-dir", COUNTER),
        *("--model-type", "openai_model", "--model-url", origin, "--model", "m"),
        *("--model-api-key", "k", "--agent", "counter_agent"),
        *("--input", "rows.jsonl", "--output", "x.jsonl", *IMPATIENT, *more),
        cwd=folder,
        environ=environ_of(folder),
    )


FAULTS: dict[str, tuple[dict[str, Any], str, int | None]] = {
    "it answers 429 to everything": (
        {"status": 429, "headers": [["retry-after", "0"]]},
        "model_error",
        429,
    ),
    "it answers 401": ({"status": 401}, "model_error", 401),
    "it answers 500": ({"status": 500}, "model_error", 500),
    "it resets the connection": ({"reset": "before_head"}, "model_error", None),
    "it never answers": ({"hang": "before_head"}, "model_error", None),
    "it sends half a body": ({"close": "mid_body"}, "model_error", None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_provider_that_fails_fills_the_failures_and_never_gives_a_reward(
    tmp_path: Path, fault: str
) -> None:
    behaviour, failure_class, provider_status = FAULTS[fault]
    with provider_process(**behaviour) as origin:
        ended = _evaluate(tmp_path, origin, {})

    assert ended.code == 1, ended.err
    assert "Traceback" not in ended.err
    assert lines_of(tmp_path / "x.jsonl") == []
    failures = lines_of(files_of(tmp_path / "x.jsonl").failures)
    assert [row["_ng_failure_class"] for row in failures] == [failure_class] * TASKS
    for row in failures:
        assert row["_ng_failure_message"]
        if provider_status is None:
            assert "no answer from the model provider" in row["_ng_failure_message"]
            assert not row.keys() & {"_ng_provider_status", "_ng_provider_body"}
        else:
            assert row["_ng_provider_status"] == provider_status
            assert row["_ng_provider_body"]


def test_a_verifier_that_raises_is_a_failure_and_no_reward_of_zero(tmp_path: Path) -> None:
    with provider_process() as origin:
        ended = _evaluate(tmp_path, origin, {"mode": "bad_verifier"})

    assert ended.code == 1
    assert f"failed: {TASKS} verifier_error" in ended.out
    assert lines_of(tmp_path / "x.jsonl") == []


def test_a_provider_that_is_not_there_is_named_in_seconds_and_nothing_is_left(
    tmp_path: Path,
) -> None:
    with provider_process() as origin:
        pass
    began = time.monotonic()

    ended = _evaluate(tmp_path, origin, {})

    assert ended.code == 2
    assert origin.removeprefix("http://") in ended.err
    assert time.monotonic() - began < 20
    assert {path.name for path in tmp_path.iterdir()} == {"rows.jsonl", "state"}


def test_a_run_on_a_provider_that_recovers_can_be_resumed_to_its_end(tmp_path: Path) -> None:
    with provider_process(status=500) as origin:
        assert _evaluate(tmp_path, origin, {}).code == 1
    with provider_process() as origin:
        ended = _evaluate(tmp_path, origin.replace("127.0.0.1", "localhost"), {}, "--resume")

    assert ended.code == 0, ended.err
    assert [row["_ng_attempt_index"] for row in lines_of(tmp_path / "x.jsonl")] == [1] * TASKS
    assert lines_of(files_of(tmp_path / "x.jsonl").failures) == []
