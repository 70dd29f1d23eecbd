"""A disk that is slow: named where it is what a run waits for, and only there."""

import asyncio
from pathlib import Path

import pytest

from nemo_gym.capture.store import CaptureStore
from nemo_gym.files.jsonl import JsonlAppender
from nemo_gym.ids import RolloutId
from nemo_gym.rollouts.collect import CollectOptions, Collector
from nemo_gym.rollouts.plan import PlannedRollout
from nemo_gym.rollouts.progress import Progress
from nemo_gym.rollouts.resume import Attempt
from nemo_gym.rollouts.sink import RolloutSink
from nemo_gym.telemetry import live
from nemo_gym.telemetry.diagnosis import Diagnosis
from nemo_gym.telemetry.figures import snapshot
from nemo_gym.telemetry.run_view import view_run
from support.capture_writers import made_row
from support.disks import FaultyDisk
from support.rollouts import FakeAgent, FakeAnswer, Row


@pytest.fixture(autouse=True)
def _nothing_counted() -> None:
    live._reset()


def diagnosis_here() -> Diagnosis:
    return view_run([snapshot("driver")]).diagnosis


async def collected(folder: Path, *, sync_s: float, rollout_s: float) -> None:
    """Run 40 rollouts, four at once, each of which takes `rollout_s`."""

    async def solved(row: Row) -> FakeAnswer:
        await asyncio.sleep(rollout_s)
        return FakeAnswer(200, {**row, "reward": 1.0})

    disk = FaultyDisk()
    sink = RolloutSink(
        folder / "x.jsonl",
        folder / "x_failures.jsonl",
        open_file=lambda path: JsonlAppender(path, disk=disk),
    )
    disk.sync_delay_s = sync_s
    attempts = [
        Attempt(PlannedRollout(n, 0, "solver", b'{"name":"solver"}', None, b'{"n":%d}' % n), 0)
        for n in range(40)
    ]
    options = CollectOptions(concurrency=4)
    collector = Collector(FakeAgent(solved), sink, Progress(total=40), options=options)
    try:
        await collector.run(iter(attempts))
    finally:
        disk.sync_delay_s = 0.0
        sink.close()


async def test_an_output_whose_syncs_take_longer_than_rollouts_is_named(tmp_path: Path) -> None:
    await collected(tmp_path, sync_s=0.2, rollout_s=0.01)

    said = str(diagnosis_here())
    assert said.startswith("rollouts waited ")
    assert " of the time to be written; each took " in said
    assert said.endswith("put the output (--output) on a faster local disk")


async def test_an_output_that_is_written_beside_longer_rollouts_holds_nothing_up(
    tmp_path: Path,
) -> None:
    await collected(tmp_path, sync_s=0.06, rollout_s=0.2)

    assert diagnosis_here().bottleneck == "admission"


def test_a_slow_disk_of_captures_is_named(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.sync_delay_s = 0.25
    store = CaptureStore(tmp_path, disk=disk)
    for number in range(3):
        store.submit(made_row(RolloutId(f"{number}-0"), f"c{number}", 100)).result(10)
    store.close()

    assert diagnosis_here().bottleneck == "disk"
    assert "commit p99" in str(diagnosis_here())
