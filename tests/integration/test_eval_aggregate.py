"""`gym eval aggregate`: shards and repeats of one input become one set of metrics."""

import json
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.rollouts.collect import CollectOptions, StopSignal
from support.gym_command import gym
from support.rollouts import FakeAgent, FakeAnswer, Row, collect, files_of, put, rows_of, text_of


async def _odd(row: Row) -> FakeAnswer:
    return FakeAnswer(200, {**row, "reward": row["n"] % 2})


async def _even(row: Row) -> FakeAnswer:
    return FakeAnswer(200, {**row, "reward": (row["n"] + 1) % 2})


async def _fails(_: Row) -> FakeAnswer:
    return FakeAnswer(500, b"boom")


def _aggregate(folder: Path, *arguments: str) -> dict[str, Any]:
    ended = gym("eval", "aggregate", "--json", *arguments, cwd=folder)
    assert ended.code == 0, ended.err
    document: dict[str, Any] = json.loads(ended.out)
    return document


async def test_shards_of_an_input_are_different_tasks(tmp_path: Path) -> None:
    await collect(tmp_path / "a.jsonl", rows_of(6)[:3], FakeAgent(_odd))
    await collect(tmp_path / "b.jsonl", rows_of(6)[3:], FakeAgent(_odd))

    (agent,) = _aggregate(tmp_path, "a.jsonl", "b.jsonl")["agents"]

    assert (agent["counts"]["tasks"], agent["counts"]["finished"]) == (6, 6)
    assert agent["agent_metrics"]["mean/reward"] == 0.5
    assert "pass@2/reward" not in agent["agent_metrics"]
    assert "mean/n" not in agent["agent_metrics"]


async def test_tasks_whose_rows_are_alike_are_different_tasks(tmp_path: Path) -> None:
    await collect(tmp_path / "a.jsonl", [rows_of(1)[0]] * 2, FakeAgent(_odd))

    (agent,) = _aggregate(tmp_path, "a.jsonl")["agents"]

    assert (agent["counts"]["tasks"], agent["counts"]["finished"]) == (2, 2)


async def test_further_runs_of_the_same_rows_are_repeats(tmp_path: Path) -> None:
    await collect(tmp_path / "a.jsonl", rows_of(3), FakeAgent(_odd))
    await collect(tmp_path / "b.jsonl", rows_of(3), FakeAgent(_even))

    (agent,) = _aggregate(tmp_path, "a.jsonl", "b.jsonl")["agents"]

    assert agent["counts"]["tasks"] == 3
    assert agent["agent_metrics"]["pass@2/reward"] == 1.0
    assert agent["agent_metrics"]["pass^2/reward"] == 0.0


async def test_an_output_given_twice_counts_once(tmp_path: Path) -> None:
    await collect(tmp_path / "a.jsonl", rows_of(3))

    (agent,) = _aggregate(tmp_path, "a.jsonl", "./a.jsonl")["agents"]

    assert agent["counts"]["finished"] == 3


async def test_failures_are_counted_and_never_zero_rewards(tmp_path: Path) -> None:
    await collect(tmp_path / "a.jsonl", rows_of(2))
    await collect(tmp_path / "b.jsonl", rows_of(2), FakeAgent(_fails))

    (agent,) = _aggregate(tmp_path, "a.jsonl", "b.jsonl")["agents"]

    assert agent["counts"]["failed_by_class"] == {"agent_error": 2}
    assert agent["agent_metrics"]["mean/reward"] == 1.0


async def test_an_output_is_added_up_without_the_files_beside_it(tmp_path: Path) -> None:
    await collect(tmp_path / "a.jsonl", rows_of(3), FakeAgent(_odd))
    files = files_of(tmp_path / "a.jsonl")
    for path in files.all():
        if path != files.output:
            path.unlink(missing_ok=True)

    (agent,) = _aggregate(tmp_path, "a.jsonl")["agents"]

    assert (agent["counts"]["tasks"], agent["counts"]["finished"]) == (3, 3)
    assert agent["agent_metrics"]["mean/reward"] == pytest.approx(1 / 3)


async def test_a_run_that_is_not_complete_is_told(tmp_path: Path) -> None:
    stop = StopSignal()

    async def last(_: Row) -> FakeAnswer:
        stop.drain()
        return FakeAnswer(200, {"reward": 1})

    options = CollectOptions(concurrency=1)
    output = tmp_path / "a.jsonl"
    await collect(output, rows_of(50), FakeAgent(last), options=options, stop=stop)

    document = _aggregate(tmp_path, "a.jsonl")

    assert document["warnings"] == ["a.jsonl: the run is interrupted, not completed"]


async def test_failures_are_counted_under_their_class(tmp_path: Path) -> None:
    async def refuses(_: Row) -> FakeAnswer:
        return FakeAnswer(422, b"no such field")

    await collect(tmp_path / "a.jsonl", rows_of(2), FakeAgent(refuses))

    (agent,) = _aggregate(tmp_path, "a.jsonl")["agents"]

    assert agent["counts"]["failed_by_class"] == {"invalid_row": 2}


async def test_what_cannot_be_read_is_left_out_and_said(tmp_path: Path) -> None:
    await collect(tmp_path / "a.jsonl", rows_of(2))
    put(tmp_path / "a.jsonl", text_of(tmp_path / "a.jsonl") + "{torn")

    document = _aggregate(tmp_path, "a.jsonl")

    assert document["agents"][0]["counts"]["finished"] == 2
    assert "lines left out that are no rollouts: 1" in document["warnings"][0]


async def test_the_same_numbers_come_out_as_at_the_end_of_the_run(tmp_path: Path) -> None:
    await collect(tmp_path / "a.jsonl", rows_of(5), FakeAgent(_odd), num_repeats=3)
    told = json.loads(text_of(files_of(tmp_path / "a.jsonl").aggregate))

    assert _aggregate(tmp_path, "a.jsonl")["agents"] == told["agents"]


async def test_the_metrics_can_be_written_and_are_not_overwritten_unasked(tmp_path: Path) -> None:
    await collect(tmp_path / "a.jsonl", rows_of(2))
    asked = ("eval", "aggregate", "a.jsonl", "--output", "m.json")

    first, second = gym(*asked, cwd=tmp_path), gym(*asked, cwd=tmp_path)

    assert first.code == 0, first.err
    assert "solver" in first.out
    assert json.loads(text_of(tmp_path / "m.json"))["agents"][0]["counts"]["finished"] == 2
    assert second.code == 2
    assert "--overwrite" in second.err


def test_an_output_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    ended = gym("eval", "aggregate", "nothing.jsonl", cwd=tmp_path)

    assert ended.code == 2
    assert "nothing.jsonl" in ended.err


def test_a_directory_is_no_output_and_no_rollouts_are_said(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()

    folder = gym("eval", "aggregate", ".", cwd=tmp_path)
    empty = gym("eval", "aggregate", "empty.jsonl", cwd=tmp_path)

    assert (folder.code, "is a directory" in folder.err) == (2, True), folder.err
    assert (empty.code, "there are no rollouts in empty.jsonl" in empty.err) == (2, True), empty.err
    assert "mend:  give the --output of a run\n" in empty.err


@pytest.mark.parametrize(
    ("name", "mend"),
    [
        ("env.yaml", "give the --output of a run"),
        ("a_failures.jsonl", "give the --output of its run: a.jsonl"),
        ("a_materialized_inputs.jsonl", "give the --output of its run: a.jsonl"),
        ("a_run.json", "give the --output of its run: a.jsonl"),
    ],
)
async def test_a_file_that_is_no_output_is_a_mistake(tmp_path: Path, name: str, mend: str) -> None:
    (tmp_path / "env.yaml").write_text("policy_model_name: m\n")
    await collect(tmp_path / "a.jsonl", rows_of(2), FakeAgent(_fails))
    await collect(tmp_path / "b.jsonl", rows_of(2))

    ended = gym("eval", "aggregate", "b.jsonl", name, "--output", "m.json", cwd=tmp_path)

    assert ended.code == 2
    assert f"there are no rollouts in {name}" in ended.err
    assert f"mend:  {mend}\n" in ended.err
    assert not (tmp_path / "m.json").exists()


async def test_a_run_in_which_nothing_was_rewarded_is_an_output(tmp_path: Path) -> None:
    await collect(tmp_path / "a.jsonl", rows_of(2), limit=0)

    ended = gym("eval", "aggregate", "a.jsonl", cwd=tmp_path)

    assert (ended.code, "there are no rollouts" in ended.err) == (0, True), ended.err
