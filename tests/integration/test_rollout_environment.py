"""The environment's own metrics: what it is sent, and what becomes of what it answers."""

import json
from pathlib import Path

import pytest

from nemo_gym.errors import TransportError
from nemo_gym.rollouts.environment import rows_for_environment
from support.rollouts import (
    FakeAgent,
    FakeAnswer,
    Row,
    collect,
    files_of,
    rows_of,
    text_of,
    write_rows,
)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "x.jsonl"


async def _with_evidence(row: Row) -> FakeAnswer:
    attached: Row = {"ng_agent_observations": {"records": []}, "ng_trajectory": {}}
    return FakeAnswer(200, {**row, **attached, "reward": 1, "answer": "A"})


async def test_an_environment_with_metrics_of_its_own_is_asked_once_without_evidence(
    output: Path,
) -> None:
    agent = FakeAgent(_with_evidence)
    agent.custom_metrics = FakeAnswer(405, {})
    agent.metrics = FakeAnswer(
        200,
        {
            "agent_metrics": {"share_of_a": 1.0},
            "key_metrics": {"share_of_a": 1.0},
            "group_level_metrics": [{"_ng_task_index": 0}],
        },
    )

    report = await collect(output, rows_of(2), agent, num_repeats=2)

    (rows,) = agent.aggregated
    assert [(r["_ng_task_index"], r["_ng_rollout_index"]) for r in rows] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    assert not [key for row in rows for key in row if key.startswith("ng_")]
    assert rows[0]["answer"] == "A"
    assert report.agents[0].agent_metrics["share_of_a"] == 1.0
    assert report.agents[0].agent_metrics["mean/reward"] == 1.0
    document = json.loads(text_of(files_of(output).aggregate))
    (entry,) = document["agents"]
    assert entry["key_metrics"] == {"share_of_a": 1.0}
    assert entry["group_level_metrics"] == [{"_ng_task_index": 0}]


async def test_an_environment_without_metrics_of_its_own_is_sent_nothing(output: Path) -> None:
    agent = FakeAgent()

    report = await collect(output, rows_of(2), agent)

    assert agent.aggregated == []
    assert report.agents[0].key_metrics == {"mean/reward": 1.0}


@pytest.mark.parametrize("says", [{}, {"custom": True}, {"custom": None}, []])
async def test_an_environment_that_does_not_say_no_is_asked(output: Path, says: object) -> None:
    agent = FakeAgent()
    agent.custom_metrics = FakeAnswer(200, says)
    agent.metrics = FakeAnswer(200, {"agent_metrics": {"own": 3.0}})

    report = await collect(output, rows_of(1), agent)

    assert report.agents[0].agent_metrics["own"] == 3.0


def test_rows_are_sent_in_the_order_of_tasks_and_repeats_whenever_they_ended(
    tmp_path: Path,
) -> None:
    pairs = [(10, 0), (2, 1), (2, 0), (0, 3)]
    rows: list[Row] = [
        {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": "solver"}}
        for task, rollout in pairs
    ]
    body, _ = rows_for_environment(write_rows(tmp_path / "x.jsonl", rows), "solver")

    sent = json.loads(body or b"")["verify_responses"]
    assert [(r["_ng_task_index"], r["_ng_rollout_index"]) for r in sent] == sorted(pairs)


@pytest.mark.parametrize(("less", "fits"), [(0, True), (1, False)])
def test_rows_may_have_exactly_the_bytes_that_are_allowed(
    tmp_path: Path, less: int, fits: bool
) -> None:
    row: Row = {"_ng_task_index": 0, "_ng_rollout_index": 0, "agent_ref": {"name": "solver"}}
    path = write_rows(tmp_path / "x.jsonl", [row])
    whole, _ = rows_for_environment(path, "solver")
    size = len(whole or b"") - len(b'{"verify_responses":[]}')
    body, notes = rows_for_environment(path, "solver", levels=[((), size - less)])

    assert (body is not None, not notes) == (fits, fits)


class Unreachable(FakeAgent):
    """Is gone, or too late, once the rollouts are over."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def get(self, server_name: str, url_path: str) -> FakeAnswer:
        raise self.error


@pytest.mark.parametrize("error", [TransportError("gone"), TimeoutError()])
async def test_an_environment_that_cannot_be_asked_costs_its_metrics_only(
    output: Path, error: Exception
) -> None:
    report = await collect(output, rows_of(2), Unreachable(error))

    assert report.exit_code == 0
    assert "metrics are missing" in report.agents[0].notes[0]
    assert report.agents[0].agent_metrics["mean/reward"] == 1.0


@pytest.mark.parametrize("answer", [(500, {"error": "boom"}), (200, b"boom"), (200, ["boom"])])
async def test_an_environment_that_fails_to_answer_costs_its_metrics_only(
    output: Path, answer: tuple[int, object]
) -> None:
    agent = FakeAgent()
    agent.custom_metrics = FakeAnswer(404, {})
    agent.metrics = FakeAnswer(*answer)

    report = await collect(output, rows_of(2), agent)

    assert report.exit_code == 0
    assert "boom" in report.agents[0].notes[0]
    assert report.agents[0].agent_metrics["mean/reward"] == 1.0


async def test_the_aggregate_has_counts_tokens_and_latency(output: Path) -> None:
    async def run(row: Row) -> FakeAnswer:
        if row["n"] == 0:
            return FakeAnswer(500, b"boom")
        usage = {"input_tokens": 10 * row["n"], "output_tokens": 1}
        return FakeAnswer(200, {**row, "reward": row["n"] % 2, "response": {"usage": usage}})

    await collect(output, rows_of(4), FakeAgent(run))

    (entry,) = json.loads(text_of(files_of(output).aggregate))["agents"]
    assert entry["agent_ref"] == {"name": "solver"}
    assert entry["counts"] == {
        "tasks": 3,
        "finished": 3,
        "failed": 1,
        "failed_by_class": {"agent_error": 1},
    }
    assert entry["tokens"]["tokens_in"]["total"] == 60
    assert entry["latency_ms"]["known"] == 3
    metrics = entry["agent_metrics"]
    assert metrics["mean/reward"] == pytest.approx(2 / 3)
    low, high = metrics["mean/reward/ci95_low"], metrics["mean/reward/ci95_high"]
    assert 0 <= low < 2 / 3 < high <= 1
    assert "mean/n" not in metrics


def _rows(tmp_path: Path, request: int, response: int) -> Path:
    rows = [
        {
            "_ng_task_index": n,
            "_ng_rollout_index": 0,
            "agent_ref": {"name": "solver" if n % 2 else "other"},
            "request": "x" * request,
            "response": "x" * response,
        }
        for n in range(4)
    ]
    return write_rows(tmp_path / "x.jsonl", rows)


LEVELS = (((), 2000), (("request",), 1000), (("request", "response"), 1000))


@pytest.mark.parametrize(
    ("size", "gone"), [(100, []), (400, ["request"]), (1000, ["request", "response"])]
)
def test_rows_that_are_large_go_without_request_then_without_response(
    tmp_path: Path, size: int, gone: list[str]
) -> None:
    body, notes = rows_for_environment(_rows(tmp_path, 3 * size, size), "solver", levels=LEVELS)

    rows = json.loads(body or b"")["verify_responses"]
    assert [row["_ng_task_index"] for row in rows] == [1, 3]
    assert [key for key in ("request", "response") if key not in rows[0]] == gone
    assert all(key in "".join(notes) for key in gone)
    assert bool(notes) == bool(gone)


def test_rows_that_are_far_too_large_are_not_sent_and_that_is_said(tmp_path: Path) -> None:
    path = _rows(tmp_path, 10, 10)

    body, notes = rows_for_environment(path, "solver", levels=[((), 100)])

    assert body is None
    assert "missing" in notes[0]
