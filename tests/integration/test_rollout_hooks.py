"""The driver's hooks: what is prepared, what is attached, and what becomes of a hook that fails."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.errors import OutputUnusable
from nemo_gym.rollouts.collect import CollectOptions, Collector, Hooks
from nemo_gym.rollouts.lines import Members
from nemo_gym.rollouts.plan import PlannedRollout
from nemo_gym.rollouts.progress import Progress
from nemo_gym.rollouts.record import EndedAttempt
from nemo_gym.rollouts.resume import Attempt
from nemo_gym.rollouts.sink import RolloutSink
from support.rollouts import FakeAgent, FakeAnswer, Row, lines_of


class Recorded:
    """Hooks that note what they are given."""

    def __init__(self, attached: Any = None) -> None:
        self.prepared: list[Mapping[str, object]] = []
        self.ended: list[Row] = []
        self.finished: list[str] = []
        self._attached = attached

    def hooks(self) -> Hooks:
        return Hooks(prepare=self._prepare, attach=self._attach, finished=self._finish)

    def _prepare(self, rows: Sequence[Mapping[str, object]]) -> None:
        self.prepared += rows

    async def _attach(self, ended: EndedAttempt) -> Mapping[str, object]:
        self.ended.append(ended.record())
        if isinstance(self._attached, Exception):
            raise self._attached
        return {"ng_evidence": self._attached}

    def _finish(self, ended: EndedAttempt, members: Members) -> None:
        assert members["_ng_rollout_index"] == b"0"
        self.finished.append(str(ended.attempt.rollout_id))


def _attempts(count: int) -> list[Attempt]:
    return [
        Attempt(PlannedRollout(n, 0, "solver", b'{"name":"solver"}', None, b'{"n":%d}' % n), n % 2)
        for n in range(count)
    ]


async def _odd_fail(row: Row) -> FakeAnswer:
    return FakeAnswer(500, b"boom") if row["n"] % 2 else FakeAnswer(200, {**row, "reward": 1})


async def _collect(folder: Path, hooks: Hooks, agent: FakeAgent) -> Progress:
    progress = Progress(total=6)
    sink = RolloutSink(folder / "x.jsonl", folder / "x_failures.jsonl")
    try:
        collector = Collector(
            agent, sink, progress, options=CollectOptions(concurrency=2), hooks=hooks
        )
        await collector.run(iter(_attempts(6)))
    finally:
        sink.close()
    return progress


async def test_attempts_are_prepared_before_dispatch_and_evidence_is_on_every_row(
    tmp_path: Path,
) -> None:
    recorded = Recorded({"calls": 1})
    agent = FakeAgent(_odd_fail)

    await _collect(tmp_path, recorded.hooks(), agent)

    assert [row["_ng_task_index"] for row in recorded.prepared] == list(range(6))
    assert [row.get("_ng_attempt_index", 0) for row in recorded.prepared] == [0, 1] * 3
    assert [row.get("_ng_attempt_index", 0) for row in agent.rows] == [0, 1] * 3
    rows = lines_of(tmp_path / "x.jsonl") + lines_of(tmp_path / "x_failures.jsonl")
    assert [row["ng_evidence"] for row in rows] == [{"calls": 1}] * 6
    assert sorted(recorded.finished) == ["0-0", "1-0-a1", "2-0", "3-0-a1", "4-0", "5-0-a1"]


async def test_a_hook_sees_the_whole_row_of_a_success_and_of_a_failure(tmp_path: Path) -> None:
    recorded = Recorded()

    await _collect(tmp_path, recorded.hooks(), FakeAgent(_odd_fail))

    by_task = {row["_ng_task_index"]: row for row in recorded.ended}
    assert by_task[0]["reward"] == 1
    assert by_task[1]["_ng_failure_class"] == "agent_error"
    assert by_task[1]["ng_timing"]["latency_ms"] >= 0


@pytest.mark.parametrize("attached", [RuntimeError("gone"), {1, 2}])
async def test_evidence_that_cannot_be_had_costs_no_rollout(tmp_path: Path, attached: Any) -> None:
    progress = await _collect(tmp_path, Recorded(attached).hooks(), FakeAgent(_odd_fail))

    assert (progress.finished, progress.failed.total()) == (3, 3)
    assert not [row for row in lines_of(tmp_path / "x.jsonl") if "ng_evidence" in row]


async def test_what_cannot_be_prepared_ends_the_run_with_its_message(tmp_path: Path) -> None:
    def refuse(_: Sequence[Mapping[str, object]]) -> None:
        raise OutputUnusable("old captures cannot be cleared")

    agent = FakeAgent()
    with pytest.raises(OutputUnusable, match="cannot be cleared"):
        await _collect(tmp_path, Hooks(prepare=refuse), agent)

    assert agent.rows == []
