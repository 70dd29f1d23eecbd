"""Every dispatched row ends in exactly one row of the run's files, whatever its agent does."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.errors import (
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    OutputExists,
    OutputUnusable,
    ReplyInvalid,
    UserMistake,
)
from nemo_gym.rollouts.collect import CollectOptions, StopSignal
from support.rollouts import (
    FakeAgent,
    FakeAnswer,
    Row,
    collect,
    files_of,
    lines_of,
    pairs_of,
    put,
    rows_of,
    text_of,
)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "results" / "x.jsonl"


@pytest.fixture(autouse=True)
def results(output: Path) -> None:
    output.parent.mkdir()


async def test_every_rollout_is_one_row_with_its_reward(output: Path) -> None:
    report = await collect(output, rows_of(5), num_repeats=3)

    assert sorted(pairs_of(output)) == [(t, r) for t in range(5) for r in range(3)]
    assert (report.finished, report.exit_code, report.status) == (15, 0, "completed")
    assert lines_of(files_of(output).failures) == []


async def test_an_output_row_is_the_verify_response_and_whose_rollout_it_is(output: Path) -> None:
    async def verified(row: Row) -> FakeAnswer:
        return FakeAnswer(200, {"reward": 0.5, "note": "é", "big": 2**70, "given": row})

    await collect(output, rows_of(1), FakeAgent(verified))

    (row,) = lines_of(output)
    timing = row.pop("ng_timing")
    assert row == {
        "reward": 0.5,
        "note": "é",
        "big": 2**70,
        "given": {
            **rows_of(1)[0],
            "agent_ref": {"name": "solver"},
            "_ng_task_index": 0,
            "_ng_rollout_index": 0,
        },
        "agent_ref": {"name": "solver"},
        "_ng_task_index": 0,
        "_ng_rollout_index": 0,
    }
    assert timing["latency_ms"] >= 0


async def test_never_more_run_at_once_than_asked_for(output: Path) -> None:
    agent = FakeAgent()

    await collect(output, rows_of(200), agent, options=CollectOptions(concurrency=7))

    assert agent.most_running == 7
    assert len(agent.rows) == 200


async def test_the_materialized_inputs_are_what_agents_were_sent(output: Path) -> None:
    agent = FakeAgent()

    await collect(output, rows_of(3), agent, num_repeats=2)

    sent = sorted(agent.rows, key=lambda row: (row["_ng_task_index"], row["_ng_rollout_index"]))
    assert lines_of(files_of(output).materialized) == sent


BAD_ANSWERS: dict[str, tuple[Any, str]] = {
    "its agent crashed": (FakeAnswer(500, b"Internal Server Error"), "agent_error"),
    "its agent said nothing": (FakeAnswer(200, b""), "agent_error"),
    "its verifier gave no reward": (FakeAnswer(200, {"reward": None}), "verifier_error"),
    "its agent refused the row": (FakeAnswer(422, {"detail": []}), "invalid_row"),
    "its agent was not there": (ConnectFailed("refused"), "connection"),
    "its connection broke": (ConnectionLost("reset", response_started=True), "connection"),
    "it was silent": (CallTimeout("silence"), "timeout"),
    "its answer was no HTTP": (ReplyInvalid("garbage"), "agent_error"),
    "the driver has a bug": (KeyError("bug"), "agent_error"),
}


@pytest.mark.parametrize("why", BAD_ANSWERS)
async def test_a_rollout_that_fails_is_a_failure_and_the_others_go_on(
    output: Path, why: str
) -> None:
    answer, failure_class = BAD_ANSWERS[why]

    async def run(row: Row) -> FakeAnswer:
        if row["n"] != 1:
            return FakeAnswer(200, {"reward": 1})
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    report = await collect(output, rows_of(4), FakeAgent(run))

    (failure,) = lines_of(files_of(output).failures)
    assert failure["_ng_failure_class"] == failure_class
    assert (failure["_ng_task_index"], failure["agent_ref"]) == (1, {"name": "solver"})
    assert sorted(pairs_of(output)) == [(0, 0), (2, 0), (3, 0)]
    assert (report.exit_code, dict(report.failed)) == (1, {failure_class: 1})


async def test_a_provider_that_refuses_everything_fills_the_failures_with_its_words(
    output: Path,
) -> None:
    reported = {
        "type": "rollout_failure",
        "failure_class": "model_error",
        "message": "policy_model answered 429",
        "provider_status": 429,
        "provider_body": "slow down",
    }

    async def run(_: Row) -> FakeAnswer:
        return FakeAnswer(500, {"error": reported})

    report = await collect(output, rows_of(20), FakeAgent(run))

    failures = lines_of(files_of(output).failures)
    assert len(failures) == 20
    assert {(f["_ng_provider_status"], f["_ng_provider_body"]) for f in failures} == {
        (429, "slow down")
    }
    assert lines_of(output) == []
    assert report.exit_code == 1


async def test_a_rollout_that_takes_too_long_is_ended_and_told(output: Path) -> None:
    async def run(row: Row) -> FakeAnswer:
        if row["n"] == 0:
            await asyncio.Event().wait()
        return FakeAnswer(200, {"reward": 1})

    options = CollectOptions(rollout_timeout_s=0.05)
    await collect(output, rows_of(3), FakeAgent(run), options=options)

    (failure,) = lines_of(files_of(output).failures)
    assert failure["_ng_failure_class"] == "timeout"
    assert "0.05 s" in failure["_ng_failure_message"]
    assert len(lines_of(output)) == 2


async def test_the_first_stop_finishes_what_runs_and_dispatches_nothing_more(output: Path) -> None:
    stop, opened = StopSignal(), asyncio.Event()

    async def run(row: Row) -> FakeAnswer:
        if row["n"] == 3:
            stop.drain()
            opened.set()
        await opened.wait()
        return FakeAnswer(200, {"reward": 1})

    agent = FakeAgent(run)
    options = CollectOptions(concurrency=4)
    report = await collect(output, rows_of(50), agent, options=options, stop=stop)

    assert sorted(pairs_of(output)) == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert len(agent.rows) == 4
    assert (report.status, report.exit_code, report.pending) == ("interrupted", 130, 46)


async def test_the_second_stop_ends_what_runs_as_cancelled(output: Path) -> None:
    stop = StopSignal()

    async def run(row: Row) -> FakeAnswer:
        if row["n"] == 3:
            asyncio.get_running_loop().call_soon(stop.stop)
        await asyncio.Event().wait()
        raise AssertionError

    options = CollectOptions(concurrency=4)
    report = await collect(output, rows_of(50), FakeAgent(run), options=options, stop=stop)

    failures = lines_of(files_of(output).failures)
    assert {f["_ng_failure_class"] for f in failures} == {"cancelled"}
    assert len(failures) == 4
    assert report.exit_code == 130


async def test_a_run_of_which_only_what_was_cancelled_is_missing_was_interrupted(
    output: Path,
) -> None:
    stop = StopSignal()

    async def run(row: Row) -> FakeAnswer:
        if row["n"] == 0:
            return FakeAnswer(200, {"reward": 1})
        if row["n"] == 3:
            asyncio.get_running_loop().call_soon(stop.stop)
        await asyncio.Event().wait()
        raise AssertionError

    agent = FakeAgent(run)
    agent.custom_metrics = FakeAnswer(404, {})  # as of an environment with metrics of its own
    report = await collect(output, rows_of(4), agent, stop=stop)

    assert (report.pending, report.failed) == (0, {"cancelled": 3})
    assert (report.status, report.exit_code) == ("interrupted", 130)
    assert agent.aggregated == []


async def test_a_run_limited_to_no_rows_is_complete_and_says_so(output: Path) -> None:
    report = await collect(output, rows_of(2), limit=0)

    assert (report.planned, report.exit_code) == (0, 0)
    assert report.warnings == ("nothing was run: --limit is 0",)
    assert lines_of(output) == []


async def test_an_input_without_rows_is_a_mistake(output: Path) -> None:
    with pytest.raises(UserMistake, match="no rows"):
        await collect(output, rows_of(0))


async def test_the_manifest_says_what_was_run_and_how_it_ended(output: Path) -> None:
    tree = {"policy_model_name": "m", "policy_api_key": "***"}
    await collect(output, rows_of(4), tree=tree, num_repeats=2, limit=3)

    manifest = json.loads(files_of(output).manifest.read_text())
    assert manifest["config"] == tree
    assert manifest["selection"] == {"agent": "solver", "limit": 3, "num_repeats": 2}
    assert manifest["counts"] | {"failed_by_class": {}} == {
        "planned": 6,
        "finished": 6,
        "failed": 0,
        "failed_by_class": {},
        "pending": 0,
    }
    assert (manifest["status"], manifest["sessions"][0]["status"]) == ("completed", "completed")
    assert manifest["sessions"][0]["ended_at"] >= manifest["sessions"][0]["started_at"]


async def test_the_manifest_is_there_before_the_first_rollout(output: Path) -> None:
    seen: list[str] = []

    async def run(_: Row) -> FakeAnswer:
        seen.append(json.loads(files_of(output).manifest.read_text())["status"])
        return FakeAnswer(200, {"reward": 1})

    await collect(output, rows_of(1), FakeAgent(run))

    assert seen == ["running"]


async def test_an_output_that_is_there_is_never_touched_unasked(output: Path) -> None:
    put(output, "mine\n")

    with pytest.raises(OutputExists, match=r"x\.jsonl"):
        await collect(output, rows_of(1))

    assert text_of(output) == "mine\n"
    assert sorted(path.name for path in output.parent.iterdir()) == ["rows.jsonl", "x.jsonl"]


async def test_overwrite_starts_anew(output: Path) -> None:
    await collect(output, rows_of(4))
    await collect(output, rows_of(2), mode="overwrite")

    assert sorted(pairs_of(output)) == [(0, 0), (1, 0)]


async def test_a_directory_that_is_missing_is_made(output: Path, tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "x.jsonl"
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(rows_of(1)[0]) + "\n")

    await collect(deep, rows)

    assert len(lines_of(deep)) == 1


async def test_a_directory_that_cannot_be_made_is_told_before_anything_starts(
    output: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(rows_of(1)[0]) + "\n")
    agent = FakeAgent()

    with pytest.raises(OutputUnusable, match="cannot be written"):
        await collect(tmp_path / "file" / "x.jsonl", rows, agent)

    assert agent.rows == []


async def test_a_row_that_is_no_json_is_told_by_line_and_leaves_nothing(
    output: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "bad.jsonl"
    rows.write_text(json.dumps(rows_of(1)[0]) + "\n\n{broken\n")

    with pytest.raises(Exception, match=r"bad\.jsonl:3"):
        await collect(output, rows)

    assert list(output.parent.iterdir()) == []
