"""Whose rollout a row is, is what the driver says: not what an agent answers, nor what is twice."""

from pathlib import Path
from typing import Any

import pytest

from nemo_gym.capture.row import Row as CapturedRow
from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import rollout_id_of_record
from support.rollouts import FakeAgent, FakeAnswer, Row, collect, files_of, lines_of, rows_of

LIES: dict[str, Any] = {
    "_ng_task_index": 7,
    "_ng_rollout_index": 7,
    "_ng_attempt_index": 7,
    "agent_ref": {"name": "another"},
    "ng_timing": {"latency_ms": -1},
    "ng_model_call_capture": {"calls": "none"},
}
KEPT = {"reward": 0.25, "response": {"id": "r", "output": [{"generation_log_probs": [-0.1]}]}}


async def test_an_answer_cannot_make_its_row_that_of_another_rollout(tmp_path: Path) -> None:
    async def lie(row: Row) -> FakeAnswer:
        return FakeAnswer(200, {**row, **LIES, **KEPT})

    tree = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path / "captures")}
    await collect(tmp_path / "x.jsonl", rows_of(1), FakeAgent(lie), tree=tree)

    (row,) = lines_of(tmp_path / "x.jsonl")
    assert (row["_ng_task_index"], row["_ng_rollout_index"]) == (0, 0)
    assert "_ng_attempt_index" not in row
    assert row["agent_ref"] == {"name": "solver"}
    assert row["ng_timing"]["latency_ms"] >= 0
    assert row["ng_model_call_capture"]["rollout_id"] == "0-0"
    assert {key: row[key] for key in KEPT} == KEPT


@pytest.mark.parametrize("attempt", [0, 1])
async def test_rows_with_ids_of_their_own_are_looked_up_under_them(
    tmp_path: Path, attempt: int
) -> None:
    store = CaptureStore(tmp_path / "captures")

    async def call(row: Row) -> FakeAnswer:
        rollout_id = rollout_id_of_record(row)
        assert rollout_id is not None
        store.submit(CapturedRow(rollout_id, "c", b'{"model_call_id":"c"}')).result()
        fails = row.get("_ng_attempt_index", 0) < attempt
        return FakeAnswer(500 if fails else 200, {"reward": 1})

    output = tmp_path / "x.jsonl"
    tree = {"observability_enabled": True, "model_call_capture_dir": str(store.directory)}
    rows = [{**rows_of(1)[0], "_ng_rollout_id": "mine"}]
    for _ in range(1 + attempt):
        await collect(output, rows, FakeAgent(call), tree=tree, mode="resume")

    (row,) = lines_of(output)
    attached = row["ng_model_call_capture"]
    assert attached["rollout_id"] == rollout_id_of_record(row) == ("mine", "mine-a1")[attempt]
    assert attached["metrics"]["num_calls"] == 1
    store.close()


async def test_of_two_rows_of_one_rollout_the_first_is_kept(tmp_path: Path) -> None:
    output = tmp_path / "x.jsonl"
    await collect(output, rows_of(2))
    first = output.read_bytes().splitlines(keepends=True)
    output.write_bytes(b"".join(first) + first[0].replace(b"1.0", b"0.0"))

    report = await collect(output, rows_of(2), mode="resume")

    assert output.read_bytes().splitlines(keepends=True) == first
    assert (report.finished, report.agents[0].agent_metrics["mean/reward"]) == (2, 1.0)
    assert lines_of(files_of(output).failures) == []
