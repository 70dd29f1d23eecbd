"""Whether a provider is full: told from how long calls take alone and in company."""

import heapq
from dataclasses import replace

import pytest

from nemo_gym.telemetry.diagnosis import Diagnosis
from nemo_gym.telemetry.figures import (
    CaptureFigures,
    FigureSnapshot,
    ModelFigures,
    RolloutFigures,
    from_json,
    to_json,
)
from nemo_gym.telemetry.live import LIVE_DURATION_BOUNDARIES_S, LOADS, LatencyByLoad
from nemo_gym.telemetry.run_view import diagnose_run
from nemo_gym.telemetry.series import HistogramReading, PlainHistogram

NOTHING = HistogramReading((), (0,), 0.0)


def run_of(rollouts: int, concurrency: int, call_s: float, slots: int) -> list[FigureSnapshot]:
    """Return the figures of a run in which `slots` calls are answered at once, in order."""
    loads, durations = LatencyByLoad(), PlainHistogram(LIVE_DURATION_BOUNDARIES_S)
    free = [0.0] * slots
    under_way: list[float] = []
    now = active_s = 0.0
    for _ in range(rollouts):
        if len(under_way) == concurrency:
            now = heapq.heappop(under_way)
        ends = max(now, heapq.heappop(free)) + call_s
        heapq.heappush(free, ends)
        heapq.heappush(under_way, ends)
        loads.record(len(under_way), ends - now)
        durations.record(ends - now)
        active_s += ends - now
    model = ModelFigures(
        *(rollouts, 0, 0, 0, 0, 0, durations.read().trimmed(), 0, 0, 0, 0.0),
        load_calls=tuple(loads.calls),
        load_seconds=tuple(loads.seconds),
    )
    ran_s = max(under_way)
    driver = RolloutFigures(
        *(rollouts, rollouts, 0, 0, rollouts, 0, 0.0),
        # Sixteen wait at a time, however many are left.
        waited_s=16 * ran_s if rollouts > concurrency else 0.0,
        active_s=active_s,
        most_active=min(rollouts, concurrency),
        ran_s=ran_s,
    )
    capture = CaptureFigures(0, 0, 0, NOTHING)
    return [FigureSnapshot("driver", 1, ran_s, ran_s, driver, (), model, capture, None)]


def found(snapshots: list[FigureSnapshot]) -> Diagnosis:
    return diagnose_run(from_json(to_json(snapshots)))


@pytest.mark.parametrize("concurrency", [2, 8, 64, 512])
def test_a_provider_as_quick_under_any_load_calls_for_more_concurrency(concurrency: int) -> None:
    said = found(run_of(2400, concurrency, call_s=1.001, slots=10_000))

    assert said.bottleneck == "admission"
    assert "raise --concurrency: the provider shows no sign of being full" in said.advice
    assert "provider p50 1.0 s" in said.evidence


@pytest.mark.parametrize(("concurrency", "slots"), [(16, 2), (64, 8), (64, 16), (512, 64)])
def test_a_provider_that_lets_calls_wait_is_full(concurrency: int, slots: int) -> None:
    said = found(run_of(2400, concurrency, call_s=1.0, slots=slots))

    assert said.bottleneck == "provider"
    assert "more concurrency would only queue" in said.advice
    assert "times as long in company" in str(said)
    assert "had to be repeated" not in str(said)


@pytest.mark.parametrize("concurrency", [4, 16])
def test_a_model_run_here_whose_slots_are_all_in_use_is_the_limit(concurrency: int) -> None:
    [one] = run_of(40, concurrency, call_s=1.4, slots=2)

    said = found([replace(one, model=replace(one.model, local_slots=2))])

    assert said.bottleneck == "local_model"
    assert "raise --concurrency" not in str(said)


def test_where_all_rollouts_run_at_once_the_provider_sets_the_pace() -> None:
    said = found(run_of(40, 500, call_s=6.0, slots=10_000))

    assert said.bottleneck == "provider"
    assert "sets the pace" in said.advice


@pytest.mark.parametrize(
    ("under_way", "load"),
    [(1, 0), (2, 1), (3, 1), (4, 2), (7, 2), (64, 6), (32767, 14), (32768, 15), (10**6, 15)],
)
def test_calls_are_told_apart_by_powers_of_two_in_company(under_way: int, load: int) -> None:
    by_load = LatencyByLoad()

    by_load.record(under_way, 2.0)

    assert by_load.calls == [int(at == load) for at in range(LOADS)]
    assert by_load.seconds[load] == 2.0
