"""Servers that crash, exit or are killed in the middle of a run: told, and nothing is lost."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.eval_command import environ_of, eval_arguments, eval_run, task_file
from support.eval_servers import COUNTER, provider_process
from support.gym_command import Ended, gym
from support.processes import children_of, wait_for_lines
from support.rollouts import files_of, lines_of, pairs_of

TASKS, REPEATS = 10, 6
ALL_PAIRS = [(task, rollout) for task in range(TASKS) for rollout in range(REPEATS)]


def _counter(origin: str, *more: str) -> list[str]:
    return [
        *("--resources-server", "counter", "--search-dir", COUNTER),
        *("--model-type", "openai_model", "--model-url", origin, "--model", "m"),
        *("--model-api-key", "k", *more),
    ]


def _rows(folder: Path, **row: Any) -> None:
    task = {"responses_create_params": {"input": [{"role": "user", "content": "hi"}]}, **row}
    (folder / "rows.jsonl").write_text((json.dumps(task) + "\n") * TASKS)


def _evaluate(*more: str) -> list[str]:
    return [
        *("eval", "run", "--agent", "counter_agent", "--input", "rows.jsonl"),
        *("--output", "x.jsonl", "--num-repeats", str(REPEATS), "--concurrency", "4", *more),
    ]


def _ended(folder: Path, *arguments: str) -> Ended:
    return gym(*arguments, cwd=folder, environ=environ_of(folder))


@contextmanager
def _started(folder: Path, *arguments: str) -> Generator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "nemo_gym", *arguments],
        cwd=folder,
        env=environ_of(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.communicate()


def test_a_verifier_that_exits_fails_its_rollout_and_never_ends_the_run(tmp_path: Path) -> None:
    _rows(tmp_path, mode="exits")
    with provider_process() as origin:
        ended = _ended(tmp_path, *_evaluate(), *_counter(origin))

    assert ended.code == 1, ended.err
    assert lines_of(tmp_path / "x.jsonl") == []
    failures = lines_of(files_of(tmp_path / "x.jsonl").failures)
    assert {row["_ng_failure_class"] for row in failures} == {"verifier_error"}
    assert "SystemExit" in failures[0]["_ng_failure_message"]
    assert "Traceback" not in ended.err


def test_an_agent_that_exits_fails_its_rollout_and_never_ends_the_run(tmp_path: Path) -> None:
    task_file(tmp_path, [{}, {"exit": True}, {}])

    ended = eval_run(tmp_path)

    assert ended.code == 1, ended.err
    assert len(pairs_of(tmp_path / "x.jsonl")) == 2
    assert "failed: 1 agent_error" in ended.out


@pytest.mark.parametrize("placement", [("--workers", "2"), ("--one-process-each",)])
def test_a_process_killed_in_the_middle_of_a_run_costs_what_it_ran_and_mixes_no_captures(
    tmp_path: Path, placement: tuple[str, ...]
) -> None:
    _rows(tmp_path)
    capture = ("++observability_enabled=true", f"++model_call_capture_dir={tmp_path}/captures")
    with provider_process(delay_s=0.1) as origin:
        command = [*_evaluate(), *_counter(origin, *capture), *placement]
        with _started(tmp_path, *command) as process:
            wait_for_lines(tmp_path / "x.jsonl", 8)
            os.kill(children_of(process.pid)[0], signal.SIGKILL)
            _, said = process.communicate(timeout=60)
        first = lines_of(files_of(tmp_path / "x.jsonl").failures)
        resumed = _ended(tmp_path, *command, "--resume")

    assert "killed by signal 9" in said
    assert "starting it again" in said
    assert "Traceback" not in said
    assert process.returncode == (1 if first else 0)
    assert {row["_ng_failure_class"] for row in first} <= {"connection", "verifier_error"}
    assert resumed.code == 0, resumed.err
    rows = lines_of(tmp_path / "x.jsonl")
    assert sorted(pairs_of(tmp_path / "x.jsonl")) == ALL_PAIRS
    assert [len(row["ng_model_call_capture"]["calls"]) for row in rows] == [1] * len(ALL_PAIRS)


def test_servers_that_end_under_a_driver_of_their_own_end_its_run_in_seconds(
    tmp_path: Path,
) -> None:
    _rows(tmp_path)
    with provider_process(delay_s=0.1) as origin:
        start = ("env", "start", *_counter(origin), "++head_server.port=0")
        with _started(tmp_path, *start) as servers:
            assert servers.stdout is not None
            told = next(line for line in servers.stdout if "healthy" in line)
            port = told.partition("head server http://127.0.0.1:")[2].partition(";")[0]
            command = [*_evaluate(), "--no-serve", f"++head_server.port={port}"]
            with _started(tmp_path, *command) as driver:
                wait_for_lines(tmp_path / "x.jsonl", 8)
                servers.send_signal(signal.SIGINT)
                out, said = driver.communicate(timeout=30)
        resumed = _ended(tmp_path, *_evaluate("--resume"), *_counter(origin))

    assert driver.returncode == 1
    assert "the servers have ended" in said
    assert "--resume" in said
    assert "Traceback" not in said
    assert "not run: " in out
    assert resumed.code == 0, resumed.err
    assert sorted(pairs_of(tmp_path / "x.jsonl")) == ALL_PAIRS


def test_two_runs_that_would_mix_their_captures_are_kept_apart(tmp_path: Path) -> None:
    held, trace = tmp_path / "released", tmp_path / "trace"
    task_file(tmp_path, [{"wait_for": str(held), "trace": str(trace)}])
    capture = ("++observability_enabled=true", f"++model_call_capture_dir={tmp_path}/captures")
    with _started(tmp_path, *eval_arguments(tmp_path, *capture)) as first:
        wait_for_lines(trace, 1)
        second = eval_run(tmp_path, "--output", "y.jsonl", *capture)
        held.touch()
        first.communicate(timeout=30)

    assert second.code == 2, second.err
    assert f"process {first.pid}" in second.err
    assert str(tmp_path / "x.jsonl") in second.err
    assert first.returncode == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [("raise RuntimeError('no weights')", "RuntimeError: no weights"), ("exit(3)", "SystemExit")],
)
def test_a_component_that_raises_while_it_is_imported_is_told_by_its_own_line(
    tmp_path: Path, line: str, said: str
) -> None:
    agent = tmp_path / "responses_api_agents" / "broken"
    (agent / "configs").mkdir(parents=True)
    (agent / "app.py").write_text(f"import os\n{line}\n")
    (agent / "configs" / "broken.yaml").write_text(
        "broken:\n  responses_api_agents:\n    broken: {entrypoint: app.py}\n"
    )
    task_file(tmp_path, [{}])

    ended = eval_run(tmp_path, "--agent-type", "broken", "--one-process-each")

    assert ended.code == 2, ended.err
    assert said in ended.err
    assert f"{agent / 'app.py'}:2" in ended.err
    assert "Traceback" not in ended.err
