"""`gym eval run` as a user types it: what it prints, writes, refuses and exits with."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.eval_command import ROW, environ_of, eval_arguments, eval_run, task_file
from support.gym_command import gym
from support.rollouts import files_of, lines_of, pairs_of

PLACEMENTS = {
    "in this process": (),
    "two cells": ("--workers", "2"),
    "one process a server": ("--one-process-each",),
}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_all_rewarded_is_exit_code_zero_wherever_servers_run(
    tmp_path: Path, placement: str
) -> None:
    task_file(tmp_path, ({"reward": n % 2} for n in range(10)))

    ended = eval_run(tmp_path, "--num-repeats", "2", *PLACEMENTS[placement])

    assert ended.code == 0, ended.err
    assert ended.err == ""
    assert sorted(pairs_of(tmp_path / "x.jsonl")) == [(t, r) for t in range(10) for r in (0, 1)]
    assert "scripted" in ended.out
    assert "0.500" in ended.out
    assert "pass@2/reward" in ended.out
    assert "x_aggregate_metrics.json" in ended.out


def test_some_failed_is_exit_code_one_and_says_how_many_of_which_class(tmp_path: Path) -> None:
    task_file(tmp_path, [{}, {"status": 422}, {"status": 500}, {"status": 500}])

    ended = eval_run(tmp_path)

    assert ended.code == 1
    assert "failed: 2 agent_error, 1 invalid_row" in ended.out
    assert "x_failures.jsonl" in ended.out


def test_an_agent_that_dies_costs_what_it_was_running_and_comes_back(tmp_path: Path) -> None:
    task_file(tmp_path, [{}, {"die": True}, *({"seconds": 0.05} for _ in range(20))])

    ended = eval_run(tmp_path, "--one-process-each", "--concurrency", "2")

    assert ended.code == 1
    failures = lines_of(files_of(tmp_path / "x.jsonl").failures)
    assert {row["_ng_failure_class"] for row in failures} == {"connection"}
    assert len(failures) <= 3
    assert len(pairs_of(tmp_path / "x.jsonl")) + len(failures) == 22
    assert "scripted" in ended.err


def test_an_agent_that_dies_again_and_again_ends_the_run_and_is_named(tmp_path: Path) -> None:
    task_file(tmp_path, ({"die": True} for _ in range(30)))

    ended = eval_run(tmp_path, "--one-process-each", "--concurrency", "1")

    assert ended.code == 1
    assert "error: scripted" in ended.err
    assert "Traceback" not in ended.err
    failures = lines_of(files_of(tmp_path / "x.jsonl").failures)
    assert 4 <= len(failures) < 30


def test_a_rollout_that_takes_too_long_is_a_timeout(tmp_path: Path) -> None:
    task_file(tmp_path, [{}, {"seconds": 30}])

    ended = eval_run(tmp_path, "--rollout-timeout", "0.3")

    assert ended.code == 1
    assert "failed: 1 timeout" in ended.out


def test_json_is_one_document_and_nothing_else(tmp_path: Path) -> None:
    task_file(tmp_path, [{}, {"status": 500}])

    ended = eval_run(tmp_path, "--json")

    document = json.loads(ended.out)
    assert (ended.code, ended.err) == (1, "")
    assert (document["finished"], document["failed_by_class"]) == (1, {"agent_error": 1})
    assert document["agents"][0]["agent_metrics"]["mean/reward"] == 1.0
    assert Path(tmp_path, document["files"]["output"]).exists()


def test_sampling_options_reach_every_request(tmp_path: Path) -> None:
    task_file(tmp_path, [{}])

    ended = eval_run(
        tmp_path,
        *("--temperature", "0.5", "--max-output-tokens", "99"),
        "++responses_create_params.top_p=0.9",
    )

    assert ended.code == 0
    (row,) = lines_of(tmp_path / "x.jsonl")
    params = {"temperature": 0.5, "max_output_tokens": 99, "top_p": 0.9}
    assert row["responses_create_params"] == {**ROW["responses_create_params"], **params}


MISTAKES: dict[str, tuple[list[dict[str, Any]] | str, tuple[str, ...], tuple[str, ...]]] = {
    "an invalid row": ('{"a": 1}\n\n{broken\n', (), ("rows.jsonl:1", "responses_create_params")),
    "a row that is no JSON": (json.dumps(ROW) + "\n{broken\n", (), ("rows.jsonl:2",)),
    "an agent that is not there": ([{}], ("--agent", "scirpted"), ("did you mean 'scripted'",)),
    "a row's agent that is not there": (
        [{"agent_ref": {"name": "other"}}],
        (),
        ("there is no agent 'other'", "rows.jsonl:1"),
    ),
    "rows with the same id": (
        [{"_ng_rollout_id": "a"}, {"_ng_rollout_id": "a"}],
        (),
        ("'a' is taken", "rows.jsonl:2"),
    ),
    "both resume and overwrite": ([{}], ("--resume", "--overwrite"), ("exclude each other",)),
    "a number that is none": ([{}], ("--limit", "x"), ("--limit",)),
    "an input that is not there": ([{}], ("--input", "row.jsonl"), ("did you mean 'rows.jsonl'",)),
    "an output that cannot be": ([{}], ("--output", "rows.jsonl/x.jsonl"), ("cannot be written",)),
    "an output that is the input": (
        [{}],
        ("--output", "rows.jsonl", "--overwrite"),
        ("is a file",),
    ),
    "an override that nothing reads": ([{}], ("++observabilty_enabled=true",), ("did you mean",)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_message_and_leaves_nothing_behind(tmp_path: Path, mistake: str) -> None:
    rows, options, said = MISTAKES[mistake]
    if isinstance(rows, str):
        (tmp_path / "rows.jsonl").write_text(rows)
    else:
        task_file(tmp_path, rows)

    ended = eval_run(tmp_path, "--output", "results/new/x.jsonl", *options)

    assert ended.code == 2, ended.err
    for text in said:
        assert text in ended.err
    assert "Traceback" not in ended.err
    assert ended.out == ""
    assert {path.name for path in tmp_path.iterdir()} <= {"rows.jsonl", "state"}


def test_a_row_without_an_agent_is_told_which_agents_there_are(tmp_path: Path) -> None:
    task_file(tmp_path, [{}])
    arguments = [a for a in eval_arguments(tmp_path) if a not in {"--agent", "scripted"}]

    ended = gym(*arguments, cwd=tmp_path, environ=environ_of(tmp_path))

    assert ended.code == 2
    assert "rows.jsonl:1" in ended.err
    assert "give --agent NAME: scripted" in ended.err


def test_an_output_that_is_there_is_not_touched(tmp_path: Path) -> None:
    task_file(tmp_path, [{}])
    (tmp_path / "x.jsonl").write_text("mine\n")

    ended = eval_run(tmp_path)

    assert ended.code == 2
    assert "--resume" in ended.err
    assert (tmp_path / "x.jsonl").read_text() == "mine\n"


def test_resuming_with_another_temperature_is_refused_and_named(tmp_path: Path) -> None:
    task_file(tmp_path, [{}])
    assert eval_run(tmp_path, "--temperature", "0.5").code == 0

    ended = eval_run(tmp_path, "--temperature", "1.0", "--resume")

    assert ended.code == 2
    assert "responses_create_params.temperature: 0.5 → 1.0" in ended.err


def test_resuming_elsewhere_and_otherwise_spread_is_fine(tmp_path: Path) -> None:
    task_file(tmp_path, [{}, {}])
    assert eval_run(tmp_path, "--limit", "1").code == 0

    ended = eval_run(tmp_path, "--resume", "--workers", "2", "--concurrency", "1")

    assert ended.code == 0, ended.err
    assert len(pairs_of(tmp_path / "x.jsonl")) == 2


def test_progress_is_told_when_a_run_takes_longer(tmp_path: Path) -> None:
    task_file(tmp_path, ({"seconds": 0.7} for _ in range(4)))

    ended = eval_run(tmp_path, "--concurrency", "1")

    assert "/4 · 1 running · " in ended.err
    assert "reward 1.000" in ended.err
