"""Rollouts with their model calls captured: on the servers of another process, through kills."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from support.eval_command import environ_of
from support.eval_servers import COUNTER, TESTS, env_start, provider_process
from support.gym_command import Ended, gym
from support.rollouts import lines_of, text_of

TASKS = 6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = ({"responses_create_params": {"input": f"q{n}"}} for n in range(TASKS))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def _arguments(*more: str) -> list[str]:
    return [
        *("eval", "run", "--no-serve", "--agent", "counter_agent", "--input", "rows.jsonl"),
        *("--output", "x.jsonl", *more),
    ]


def _evaluate(folder: Path, *more: str) -> Ended:
    return gym(*_arguments(*more), cwd=folder, environ=environ_of(folder))


def _captured(folder: Path) -> dict[str, int]:
    """Return the number of calls in every capture file."""
    return {
        path.name.removesuffix(".capture.jsonl"): len(path.read_text().splitlines())
        for path in (folder / "captures").glob("*.capture.jsonl")
    }


def _capture_settings(folder: Path) -> tuple[str, str]:
    return "++observability_enabled=true", f"++model_call_capture_dir={folder / 'captures'}"


def test_rows_carry_what_was_captured_by_servers_of_another_process(folder: Path) -> None:
    settings = _capture_settings(folder)
    with provider_process() as origin, env_start(folder, origin, *settings) as port:
        ended = _evaluate(folder, port, "--num-repeats", "2")

    assert ended.code == 0, ended.err
    rows = lines_of(folder / "x.jsonl")
    assert len(rows) == 2 * TASKS
    for row in rows:
        attached = row["ng_model_call_capture"]
        assert attached["rollout_id"] == f"{row['_ng_task_index']}-{row['_ng_rollout_index']}"
        assert attached["metrics"]["num_calls"] == 1
        assert "gaps" not in attached
        assert attached["calls"][0]["tokens_in"] == row["response"]["usage"]["input_tokens"]
    assert "warning" not in ended.err


def test_settings_given_twice_are_the_same_or_an_error_that_shows_both(folder: Path) -> None:
    settings = _capture_settings(folder)
    other = f"++model_call_capture_dir={folder / 'elsewhere'}"
    spelled = f"++model_call_capture_dir={folder}/./captures/"
    with provider_process() as origin, env_start(folder, origin, *settings) as port:
        differs = _evaluate(folder, port, other)
        off = _evaluate(folder, port, "++observability_enabled=false")
        same = _evaluate(folder, port, settings[0], spelled)

    assert differs.code == off.code == 2
    assert str(folder / "captures") in differs.err
    assert str(folder / "elsewhere") in differs.err
    assert "observability_enabled is False here and True in the running servers" in off.err
    assert same.code == 0, same.err
    assert _captured(folder) == {f"{task}-0": 1 for task in range(TASKS)}


def test_an_earlier_capture_under_the_same_id_is_cleared_before_dispatch(folder: Path) -> None:
    settings = _capture_settings(folder)
    with provider_process() as origin, env_start(folder, origin, *settings) as port:
        for _ in range(2):
            assert _evaluate(folder, port, "--overwrite").code == 0

    assert _captured(folder) == {f"{task}-0": 1 for task in range(TASKS)}


def test_a_capture_of_another_run_is_not_replaced_in_silence(folder: Path) -> None:
    settings = _capture_settings(folder)
    with provider_process() as origin, env_start(folder, origin, *settings) as port:
        ended = [
            _evaluate(folder, port),
            _evaluate(folder, port, "--overwrite"),
            _evaluate(folder, port, "--output", "y.jsonl"),
            # What it overwrites had its captures under these ids, and they are gone.
            _evaluate(folder, port, "--overwrite"),
            _evaluate(folder, port, "--overwrite"),
        ]

    told = f"were replaced in {folder / 'captures'}: {TASKS}"
    assert [told in each.err for each in ended] == [False, False, True, True, False]
    assert ["replaced" in each.err for each in ended] == [False, False, True, True, False]
    named = "that the overwritten output does not name"
    assert [named in each.err for each in ended] == [False, False, False, True, False]


def test_a_pair_under_way_when_the_driver_is_killed_gets_an_id_of_its_own(folder: Path) -> None:
    settings = _capture_settings(folder)
    with (
        # Two are answered, and what comes next is under way until the driver is dead.
        provider_process(hang="before_head") as origin,
        env_start(folder, origin, *settings) as port,
    ):
        _provider(origin, "_script", [{}, {}])
        driver = subprocess.Popen(
            [sys.executable, "-m", "nemo_gym", *_arguments(port, "--concurrency", "2")],
            cwd=folder,
            env=environ_of(folder),
        )
        _wait_until(lambda: _provider(origin, "_counts")["in_flight"] == 2)
        _wait_until(lambda: _lines(folder / "x.jsonl") == 2)
        driver.kill()
        driver.wait()
        _provider(origin, "_default", {})

        ended = _evaluate(folder, port, "--resume")

    assert ended.code == 0, ended.err
    rows = lines_of(folder / "x.jsonl")
    assert sorted(row["_ng_task_index"] for row in rows) == list(range(TASKS))
    # What the killed driver had under way has a capture, so its id is not used again.
    assert sum("_ng_attempt_index" in row for row in rows[2:]) == 2
    for row in rows[2:]:
        attached = row["ng_model_call_capture"]
        assert attached["metrics"]["num_calls"] == 1
        attempt = row.get("_ng_attempt_index", 0)
        suffix = f"-a{attempt}" if attempt else ""
        assert attached["rollout_id"] == f"{row['_ng_task_index']}-0{suffix}"
    # Late calls of the killed attempts stay under their old ids.
    assert all(calls <= 1 for calls in _captured(folder).values())


def test_a_run_whose_calls_are_not_captured_says_so_loudly(folder: Path) -> None:
    """Capture is on, and the agent never calls a model."""
    scripted = str(TESTS / "fixtures" / "rollouts")
    ended = gym(
        *("eval", "run", "--agent-type", "scripted_agent", "--search-dir", scripted),
        *("--agent", "scripted", "--input", "rows.jsonl", "--output", "x.jsonl"),
        *_capture_settings(folder),
        cwd=folder,
        environ=environ_of(folder),
    )

    assert ended.code == 0, ended.err
    assert "NOT ONE MODEL CALL WAS CAPTURED" in ended.err
    assert ended.err.count(str(folder / "captures")) == 2
    (row, *_) = lines_of(folder / "x.jsonl")
    assert row["ng_model_call_capture"]["gaps"] == [{"code": "model_call_capture_no_records"}]


RESPONSE = {
    "id": "resp_1",
    "output": [
        {
            "type": "message",
            "prompt_token_ids": [*range(128)],
            "generation_token_ids": [7, 0, 2**53 + 1],
            "generation_log_probs": [-0.30000001192092896, -1e-07, 0.0, -12.5],
            "content": [
                {
                    "type": "output_text",
                    "text": "a",
                    "logprobs": [{"token": "a", "logprob": -0.1, "bytes": [97]}],
                }
            ],
        }
    ],
    "usage": {"input_tokens": 128, "output_tokens": 3},
}


def test_capture_adds_its_attachment_and_leaves_the_rest_of_a_row_alone(folder: Path) -> None:
    row = {"responses_create_params": {"input": "q"}, "response": RESPONSE, "reward": 0.25}
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
    arguments = (
        *("eval", "run", "--agent-type", "scripted_agent", "--agent", "scripted"),
        *("--search-dir", str(TESTS / "fixtures" / "rollouts"), "--input", "rows.jsonl"),
    )
    for output, settings in (("off.jsonl", ()), ("on.jsonl", _capture_settings(folder))):
        ended = gym(
            *arguments, "--output", output, *settings, cwd=folder, environ=environ_of(folder)
        )
        assert ended.code == 0, ended.err

    (off,), (on,) = lines_of(folder / "off.jsonl"), lines_of(folder / "on.jsonl")
    added = [key for key in on if key not in off]
    assert added == ["ng_model_call_capture"]
    for row in (off, on):
        del row["ng_timing"]
    assert {key: value for key, value in on.items() if key not in added} == off
    assert json.dumps(on["response"]) == json.dumps(RESPONSE)
    assert on["reward"] == 0.25


def test_no_key_is_in_any_file_of_a_run(folder: Path) -> None:
    secret = "sk-planted-3141592653"  # noqa: S105 - planted to be looked for
    (folder / "env.yaml").write_text(f"policy_api_key: {secret}\n")
    with provider_process() as origin:
        ended = gym(
            *("eval", "run", "--resources-server", "counter", "--search-dir", COUNTER),
            *("--model-type", "openai_model", "--model-url", origin, "--model", "m"),
            *("--agent", "counter_agent", "--input", "rows.jsonl", "--output", "x.jsonl"),
            *_capture_settings(folder),
            cwd=folder,
            environ=environ_of(folder),
        )

    assert ended.code == 0, ended.err
    assert secret not in ended.out + ended.err
    files = [Path(at, name) for at, _, names in os.walk(folder) for name in names]
    assert len(files) > 8
    holders = [path.name for path in files if secret.encode() in path.read_bytes()]
    assert holders == ["env.yaml"]


def _provider(origin: str, path: str, value: Any = None) -> Any:
    """Ask a provider for its counts, or tell it what to do from now on."""
    data = None if value is None else json.dumps(value).encode()
    with urllib.request.urlopen(f"{origin}/{path}", data, timeout=10) as answer:  # noqa: S310
        return json.load(answer)


def _lines(path: Path) -> int:
    return text_of(path).count("\n") if path.exists() else 0


def _wait_until(done: Any) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)
