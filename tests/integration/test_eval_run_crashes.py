"""The driver killed, interrupted or out of disk, then resumed: every row once at the end."""

import contextlib
import json
import random
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support.eval_command import eval_run, start_eval, task_file
from support.rollouts import files_of, lines_of, pairs_of

TASKS, REPEATS = 30, 2
ALL_PAIRS = [(task, rollout) for task in range(TASKS) for rollout in range(REPEATS)]


@pytest.mark.slow
def test_a_driver_killed_ten_times_at_random_loses_and_repeats_nothing(tmp_path: Path) -> None:
    chance = random.Random(20)  # noqa: S311 - moments, not secrets
    task_file(tmp_path, ({"seconds": chance.uniform(0.02, 0.2)} for _ in range(TASKS)))
    command = ("--num-repeats", str(REPEATS), "--concurrency", "2", "--resume")
    kills = 0
    for _ in range(10):
        process = start_eval(tmp_path, *command)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=chance.uniform(0.4, 1.6))
        if process.poll() is None:
            process.kill()
            kills += 1
            process.communicate()

    ended = eval_run(tmp_path, *command)

    assert ended.code == 0, ended.err
    assert kills >= 5
    assert sorted(pairs_of(tmp_path / "x.jsonl")) == ALL_PAIRS
    manifest = json.loads(files_of(tmp_path / "x.jsonl").manifest.read_text())
    assert manifest["counts"]["finished"] == len(ALL_PAIRS)


def _wait_for(path: Path, lines: int) -> None:
    deadline = time.monotonic() + 30
    while not path.exists() or len(path.read_text().splitlines()) < lines:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _held_up(folder: Path, count: int) -> Path:
    """Write tasks that wait until a file is there; return that file."""
    released, trace = folder / "released", folder / "trace"
    task_file(folder, ({"wait_for": str(released), "trace": str(trace)} for _ in range(count)))
    return released


def test_the_first_interrupt_finishes_what_runs_and_leaves_a_run_to_resume(tmp_path: Path) -> None:
    released = _held_up(tmp_path, 8)
    process = start_eval(tmp_path, "--concurrency", "3")
    _wait_for(tmp_path / "trace", 3)

    process.send_signal(signal.SIGINT)
    said = process.stderr.readline()  # type: ignore[union-attr] # it is a pipe
    released.touch()
    out, _ = process.communicate(timeout=30)

    assert "finishing 3 rollouts" in said
    assert process.returncode == 130
    assert len(pairs_of(tmp_path / "x.jsonl")) == 3
    assert "not run: 5 of 8; go on with --resume" in out
    assert eval_run(tmp_path, "--resume").code == 0
    assert sorted(pairs_of(tmp_path / "x.jsonl")) == [(task, 0) for task in range(8)]
    assert len((tmp_path / "trace").read_text().splitlines()) == 8


def test_the_second_interrupt_stops_what_runs_and_it_is_tried_again(tmp_path: Path) -> None:
    released = _held_up(tmp_path, 8)
    process = start_eval(tmp_path, "--concurrency", "3")
    _wait_for(tmp_path / "trace", 3)

    process.send_signal(signal.SIGINT)
    process.stderr.readline()  # type: ignore[union-attr] # it is a pipe
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    process.communicate(timeout=30)

    assert process.returncode == 130
    assert time.monotonic() - began < 10
    failures = lines_of(files_of(tmp_path / "x.jsonl").failures)
    assert [row["_ng_failure_class"] for row in failures] == ["cancelled"] * 3
    released.touch()
    assert eval_run(tmp_path, "--resume").code == 0
    rows = lines_of(tmp_path / "x.jsonl")
    assert sorted(row.get("_ng_attempt_index", 0) for row in rows) == [0] * 5 + [1] * 3


def test_sigterm_stops_at_once_and_leaves_a_run_to_resume(tmp_path: Path) -> None:
    _held_up(tmp_path, 4)
    process = start_eval(tmp_path, "--concurrency", "2")
    _wait_for(tmp_path / "trace", 2)

    process.terminate()
    process.communicate(timeout=30)

    assert process.returncode == 130
    manifest = json.loads(files_of(tmp_path / "x.jsonl").manifest.read_text())
    assert manifest["status"] == "interrupted"


def test_a_full_disk_is_one_message_and_the_run_goes_on_when_there_is_room(tmp_path: Path) -> None:
    task_file(tmp_path, ({"answer_size": 20_000} for _ in range(50)))

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))

    ended = eval_run(tmp_path, "--concurrency", "4", preexec=small_files)

    assert ended.code == 2
    assert "the rollouts cannot be written" in ended.err
    assert "go on with --resume" in ended.err
    assert "Traceback" not in ended.err
    kept = len(lines_of(tmp_path / "x.jsonl"))
    assert 0 < kept < 50
    assert eval_run(tmp_path, "--resume").code == 0
    assert sorted(pairs_of(tmp_path / "x.jsonl")) == [(task, 0) for task in range(50)]


def test_a_second_live_run_on_the_same_output_is_refused_and_told_which(tmp_path: Path) -> None:
    released = _held_up(tmp_path, 1)
    process = start_eval(tmp_path)
    _wait_for(tmp_path / "trace", 1)

    second = eval_run(tmp_path, "--resume")

    released.touch()
    process.communicate(timeout=30)
    assert second.code == 2
    assert f"process {process.pid}" in second.err
    assert process.returncode == 0
