"""What the driver tells telemetry while it is on, and that it costs nothing while it is off."""

from pathlib import Path
from time import perf_counter

from nemo_gym.rollouts.collect import CollectOptions, StopSignal
from nemo_gym.telemetry.figures import snapshot
from nemo_gym.telemetry.live import live_counts
from nemo_gym.telemetry.observer import (
    DRIVER_ADMISSION_INSTRUMENT,
    DRIVER_MATERIALIZE_INSTRUMENT,
    DRIVER_OFFERED_INSTRUMENT,
    DRIVER_WRITE_BYTES_INSTRUMENT,
    DRIVER_WRITE_DURATION_INSTRUMENT,
    ROLLOUT_INPUT_ITEMS_INSTRUMENT,
    ROLLOUT_TOOL_CALLS_INSTRUMENT,
    driver_metrics,
    observe_event_loop,
)
from nemo_gym.telemetry.run_view import view_run
from support.meters import Metered, metering
from support.rollouts import FakeAgent, FakeAnswer, Row, collect, lines_of, rows_of


async def _with_tools(row: Row) -> FakeAnswer:
    if row["n"] == 0:
        return FakeAnswer(500, b"boom")
    metrics = driver_metrics()
    assert metrics is not None
    assert 1 <= metrics.driver.active <= 2
    assert metrics.driver.resident >= metrics.driver.active
    output = [{"type": "function_call"}, {"type": "function_call_output"}, {"type": "message"}]
    return FakeAnswer(200, {**row, "reward": 1, "response": {"output": output}})


def _counts(metered: Metered, name: str) -> int:
    return sum(point.count for point in metered.points(name))


def _sums(metered: Metered, name: str) -> float:
    return float(sum(point.sum for point in metered.points(name)))


async def test_every_documented_place_of_the_driver_is_counted(tmp_path: Path) -> None:
    output, options = tmp_path / "x.jsonl", CollectOptions(concurrency=2)
    with metering() as metered:
        async with observe_event_loop("driver"):
            await collect(output, rows_of(5), FakeAgent(_with_tools), options=options)
            offered = [point.value for point in metered.points(DRIVER_OFFERED_INSTRUMENT)]

        assert offered == [5]
        assert _counts(metered, DRIVER_ADMISSION_INSTRUMENT) == 5
        assert _counts(metered, DRIVER_MATERIALIZE_INSTRUMENT) == 1
        assert _counts(metered, DRIVER_WRITE_DURATION_INSTRUMENT) == 5
        assert _counts(metered, DRIVER_WRITE_BYTES_INSTRUMENT) == 5
        assert _counts(metered, ROLLOUT_INPUT_ITEMS_INSTRUMENT) == 4
        assert _sums(metered, ROLLOUT_TOOL_CALLS_INSTRUMENT) == 4
        size = output.stat().st_size - len(lines_of(output))
        failures = (tmp_path / "x_failures.jsonl").stat().st_size - 1
        assert _sums(metered, DRIVER_WRITE_BYTES_INSTRUMENT) == size + failures


async def test_the_live_view_is_counted_with_telemetry_off(tmp_path: Path) -> None:
    await collect(tmp_path / "x.jsonl", rows_of(5))

    counts = live_counts().rollouts
    assert (counts.planned, counts.offered, counts.finished, counts.reward_total) == (5, 5, 5, 5.0)
    assert (counts.active, counts.resident, counts.failed) == (0, 0, 0)
    assert driver_metrics() is None


async def test_a_resumed_run_is_counted_whole_and_its_pace_by_what_ran_since(
    tmp_path: Path,
) -> None:
    output, rows = tmp_path / "x.jsonl", rows_of(5)
    stop = StopSignal()

    async def until_the_third(row: Row) -> FakeAnswer:
        if row["n"] == 2:
            stop.drain()
        return FakeAnswer(200, {**row, "reward": 1.0})

    one_by_one = CollectOptions(concurrency=1)
    await collect(output, rows, FakeAgent(until_the_third), options=one_by_one, stop=stop)
    await collect(output, rows, mode="resume")

    counts = live_counts().rollouts
    assert (counts.planned, counts.finished, counts.finished_before) == (5, 5, 3)
    assert (counts.offered, counts.reward_total) == (2, 5.0)
    earliest = perf_counter()
    rollouts = view_run([snapshot("driver")]).rollouts
    latest = perf_counter()
    assert rollouts is not None
    assert rollouts.rate is not None
    assert counts.began_at is not None
    # Two rollouts in the time up to the look, which was somewhere between these two moments.
    assert rollouts.rate * (earliest - counts.began_at) <= 2.0001
    assert rollouts.rate * (latest - counts.began_at) >= 1.9999
    assert (rollouts.eta_s, rollouts.mean_reward) == (0, 1.0)
