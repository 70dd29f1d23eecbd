"""Providers that refuse, break, lie or vanish, seen from the end of a run."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.eval_command import environ_of
from support.eval_servers import TESTS, provider_process
from support.gym_command import Ended, gym
from support.rollouts import files_of, lines_of, pairs_of

TASKS = 4
OWN = "policy_model.responses_api_models.openai_model"
# As a user would set them for a provider whose failures are not worth waiting for.
IMPATIENT = (f"++{OWN}.max_tries=2", f"++{OWN}.retry_for_s=2", f"++{OWN}.idle_timeout_s=1")
LIMITED = {"status": 429, "body": '{"error": {"message": "slow down"}}', "headers": []}


def _evaluate(
    folder: Path, origin: str, *more: str, environ: dict[str, str] | None = None
) -> Ended:
    return gym(
        *("eval", "run", "--resources-server", "mcqa", "--model-type", "openai_model"),
        *("--model-url", origin, "--model", "m", "--model-api-key", "sk-of-the-user-4711"),
        *("--agent", "mcqa_simple_agent", "--limit", str(TASKS), "--output", "x.jsonl"),
        *("--input", "resources_servers/mcqa/data/example.jsonl", *more),
        cwd=folder,
        environ=environ_of(folder),
    )


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "invalid JSON": ({"body": '{"id": "x", "output": ['}, "not JSON"),
    "a web page": ({"body": "<html>hi</html>", "content_type": "text/html"}, "not JSON"),
    "an empty body": ({"body": ""}, "not JSON"),
    "an empty object": ({"body": "{}"}, "it has no output"),
    "output null": ({"body": '{"object": "response", "output": null}'}, "it has no output"),
    "a list": ({"body": "[1]"}, "it is list"),
    "text for items": ({"body": '{"output": ["hi"]}'}, "has no type"),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_answer_that_is_no_response_is_a_failure_and_never_a_reward_of_zero(
    tmp_path: Path, lie: str
) -> None:
    behaviour, said = LIES[lie]
    with provider_process(**behaviour) as origin:
        ended = _evaluate(tmp_path, origin, *IMPATIENT)

    assert ended.code == 1, ended.err
    assert "Traceback" not in ended.err
    assert lines_of(tmp_path / "x.jsonl") == []
    failures = lines_of(files_of(tmp_path / "x.jsonl").failures)
    assert [row["_ng_failure_class"] for row in failures] == ["model_error"] * TASKS
    for row in failures:
        assert said in row["_ng_failure_message"]
        assert row["_ng_provider_status"] == 200
        assert row["_ng_provider_body"] == behaviour["body"]


def test_a_provider_that_falls_silent_in_the_middle_of_a_body_is_named(tmp_path: Path) -> None:
    with provider_process(hang="mid_body") as origin:
        ended = _evaluate(tmp_path, origin, *IMPATIENT)

    assert ended.code == 1, ended.err
    failures = lines_of(files_of(tmp_path / "x.jsonl").failures)
    assert len(failures) == TASKS
    for row in failures:
        assert origin in row["_ng_failure_message"]
        assert "silent for 1 s" in row["_ng_failure_message"]


def test_a_401_fills_the_failures_with_the_providers_words_without_the_key(tmp_path: Path) -> None:
    with provider_process(status=401, echo_key=True) as origin:
        ended = _evaluate(tmp_path, origin)

    assert ended.code == 1, ended.err
    failures = lines_of(files_of(tmp_path / "x.jsonl").failures)
    assert [row["_ng_provider_status"] for row in failures] == [401] * TASKS
    assert "Incorrect API key" in failures[0]["_ng_provider_body"]
    assert "sk-of-the-user-4711" not in files_of(tmp_path / "x.jsonl").failures.read_text()
    assert "401" in ended.out


@contextmanager
def _limited_for(seconds: float, retry_after: str | None) -> Generator[str]:
    """Run a provider that answers 429 for so long from its first model call on; then well."""
    script = f"""
import asyncio, json, time
from support.provider import Provider, rate_limited, serve_provider
first = []
def decide(request):
    if request.method != "POST":
        return None
    first or first.append(time.monotonic())
    return rate_limited({retry_after!r}) if time.monotonic() - first[0] < {seconds} else None
async def main():
    async with serve_provider(Provider(decide=decide)) as provider:
        print(json.dumps(provider.origin), flush=True)
        await asyncio.sleep(120)
asyncio.run(main())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=TESTS, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        yield json.loads(process.stdout.readline())
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("retry_after", [None, "1"])
def test_a_provider_that_answers_429_for_ten_seconds_is_waited_for(
    tmp_path: Path, retry_after: str | None
) -> None:
    with _limited_for(10, retry_after) as origin:
        began = time.monotonic()
        ended = _evaluate(tmp_path, origin)

    assert ended.code == 0, ended.err
    assert time.monotonic() - began >= 10
    assert sorted(pairs_of(tmp_path / "x.jsonl")) == [(task, 0) for task in range(TASKS)]


def test_a_provider_that_answers_429_to_everything_ends_in_a_full_failures_file(
    tmp_path: Path,
) -> None:
    with provider_process(**LIMITED) as origin:
        ended = _evaluate(tmp_path, origin, *IMPATIENT)

    assert ended.code == 1, ended.err
    assert "Traceback" not in ended.err
    failures = lines_of(files_of(tmp_path / "x.jsonl").failures)
    assert [row["_ng_provider_status"] for row in failures] == [429] * TASKS
    assert [row["_ng_provider_body"] for row in failures] == [LIMITED["body"]] * TASKS


def test_a_provider_that_is_down_at_the_start_is_named_with_its_url_in_seconds(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        origin = f"http://127.0.0.1:{silent.getsockname()[1]}"
    began = time.monotonic()
    ended = _evaluate(tmp_path, origin, "--output", "results/x.jsonl")
    took_s = time.monotonic() - began

    assert ended.code == 2, ended.err
    assert origin in ended.err
    assert ended.err.count("error: ") == 1
    assert took_s < 20
    assert {path.name for path in tmp_path.iterdir()} == {"state"}


def test_a_provider_that_takes_connections_and_is_silent_is_warned_of_in_seconds(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        origin = f"http://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        ended = _evaluate(tmp_path, origin, "--rollout-timeout", "2")
        took_s = time.monotonic() - began

    # It may be busy, or load its model: how long to wait for it is for the run's limits to say.
    assert ended.code == 1, ended.err
    assert f"warning: policy_model: the provider is slow to answer: {origin}" in ended.err
    assert took_s < 30
    failures = lines_of(files_of(tmp_path / "x.jsonl").failures)
    assert {row["_ng_failure_class"] for row in failures} == {"timeout"}


def test_a_provider_that_goes_down_in_the_middle_of_a_run_costs_only_time(tmp_path: Path) -> None:
    with provider_process() as origin:
        first = _evaluate(tmp_path, origin, "--limit", "2")
    down = _evaluate(tmp_path, "http://127.0.0.1:9", "--resume")
    with provider_process() as origin:
        resumed = _evaluate(tmp_path, origin, "--resume")

    assert (first.code, down.code) == (0, 2)
    assert resumed.code == 0, resumed.err
    assert sorted(pairs_of(tmp_path / "x.jsonl")) == [(task, 0) for task in range(TASKS)]
