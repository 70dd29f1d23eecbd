"""Loop lag of a stretch: what was before it is no part of it, whatever a process lived through."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.telemetry.figures import (
    CaptureFigures,
    FigureSnapshot,
    LoopFigures,
    ModelFigures,
    RolloutFigures,
    from_json,
    snapshot,
    to_json,
)
from nemo_gym.telemetry.lags import Lags, lag_of, lag_of_samples
from nemo_gym.telemetry.observer import driver_metrics, observe_event_loop
from nemo_gym.telemetry.run_view import diagnose_run, view_run
from nemo_gym.telemetry.series import HistogramReading
from support.meters import metering

NOTHING = HistogramReading((), (0,), 0.0)
QUICK = [0.4, 0.6] * 15
BLOCKED = [120.0, 460.0] * 15
LAGS = st.lists(st.floats(min_value=0.01, max_value=9e4), min_size=2, max_size=60)


class Cell:
    """A process of servers that is looked at now and then; its loop is sampled once a second."""

    def __init__(self) -> None:
        self.lags = Lags()
        self.now = 0.0

    def lived(self, lags: list[float]) -> FigureSnapshot:
        for lag in lags:
            self.lags.record(lag)
        self.now += len(lags)
        last = (*self.lags.recent_held,)[-20:]
        recent = lag_of_samples((*self.lags.recent,)[-20:], last)
        loop = LoopFigures(
            *(recent.p50_ms, recent.p99_ms, recent.mean_ms, 0.0, 0, 0.0, None, None, 1, 1),
            observed_s=self.now,
            lag_held_share=recent.held_share,
            lag_recent_ms=(*self.lags.recent,)[-20:],
            lag_recent_held=last,
            lag_held=self.lags.held,
            lag=self.lags.read(),
        )
        model = ModelFigures(*(0, 0, 0, 0, 0, 0, NOTHING, 0, 0, 0, 0.0))
        capture = CaptureFigures(0, 0, 0, NOTHING)
        taken = FigureSnapshot("cell", 1, self.now, self.now, None, (), model, capture, loop)
        [carried] = from_json(to_json([taken]))
        return carried


def test_a_run_after_a_blocked_one_is_not_told_of_its_lag() -> None:
    cell = Cell()
    before, after = cell.lived(BLOCKED), cell.lived(QUICK)

    assert diagnose_run([before]).bottleneck == "event_loop"
    assert diagnose_run([after], [before]).bottleneck == "none"


def test_a_blocked_run_is_found_however_long_its_servers_idled_before() -> None:
    cell = Cell()
    before, after = cell.lived(QUICK * 100), cell.lived(BLOCKED[:8])

    found = diagnose_run([after], [before])

    assert found.bottleneck == "event_loop"
    assert "loop lag p99 46" in found.evidence[0]


def test_a_live_view_forgets_what_was_before_its_window() -> None:
    cell = Cell()
    cell.lived(BLOCKED)
    earlier, now = cell.lived(QUICK), cell.lived(QUICK[:20])

    [shown] = view_run([now], [earlier]).processes

    assert (shown.lag_p99_ms or 0) < 2
    assert view_run([now], [earlier]).diagnosis.bottleneck == "none"


def test_a_look_too_short_for_samples_shows_those_of_the_last_seconds() -> None:
    cell = Cell()
    cell.lived(QUICK * 10)
    earlier, now = cell.lived(BLOCKED), cell.lived([450.0, 0.4])

    found = view_run([now], [earlier]).diagnosis
    assert found.bottleneck == "event_loop"
    assert "loop lag p99 46" in found.evidence[0]


@pytest.mark.parametrize("look_again", [False, True], ids=["first-look", "second-look"])
def test_a_young_run_on_older_servers_is_not_told_of_lag_before_it(look_again: bool) -> None:
    cell = Cell()
    cell.lived(BLOCKED)
    earlier, now = cell.lived(QUICK[:3]), cell.lived(QUICK[:1])
    driver = RolloutFigures(100, 100, 8, 8, 9, 0, 9.0, 90.0, 10.0, most_active=8, ran_s=4.0)
    seen = replace(now, rollouts=driver)

    view = view_run([seen], [earlier] if look_again else [])

    [shown] = view.processes
    assert (shown.lag_p99_ms or 99) < 2
    assert "loop lag p99 1 ms" in str(view.diagnosis)


def test_a_stretch_without_samples_has_no_lag_to_tell() -> None:
    cell = Cell()
    before = cell.lived(BLOCKED)
    after = replace(before, taken_at=before.taken_at + 30)

    [shown] = view_run([after], [before]).processes

    assert (shown.lag_p50_ms, shown.lag_p99_ms, shown.lag_mean_ms) == (None, None, None)


@given(LAGS, LAGS)
def test_the_lag_of_a_stretch_is_that_of_its_samples_whatever_was_before(
    earlier: list[float], since: list[float]
) -> None:
    cell = Cell()
    before, after = cell.lived(earlier), cell.lived(since)
    assert before.loop is not None
    assert after.loop is not None

    told = lag_of(after.loop.lag.since(before.loop.lag))

    longest = max(since)
    mean = (sum(since) - longest) / (len(since) - 1)
    # Buckets are 2 % wide, and 1 ms where lag is no matter.
    assert told.mean_ms == pytest.approx(mean, abs=longest * 0.02 / (len(since) - 1) + 1)
    assert min(since) * 0.98 - 1 <= (told.p50_ms or 0.0) <= longest * 1.02 + 1
    assert told.p99_ms == pytest.approx(longest, rel=0.02, abs=1)


def test_memory_is_bounded_however_long_a_process_lives() -> None:
    lags = Lags()
    for _ in range(2000):
        lags.record(3.0)

    assert len(lags.recent) == 512
    assert lags.read().count == 2000


async def test_a_single_pause_makes_no_mean_lag() -> None:
    with metering(interval_s=1.0):
        async with observe_event_loop("server"):
            observer = driver_metrics()
            assert observer is not None
            for lag in [400.0] * 30 + [1.0, 3.0] * 9 + [2.0, 1030.0]:
                observer.lags.record(lag)
            taken = snapshot("cell-0")

    assert taken.loop is not None
    assert (taken.loop.lag_p99_ms, taken.loop.lag_mean_ms) == (1030.0, 2.0)


@pytest.mark.parametrize(
    ("call_s", "bottleneck"), [(20.0, "provider"), (4.0, "provider"), (0.05, "event_loop")]
)
def test_lag_is_named_only_where_it_takes_more_of_the_time_than_the_provider(
    call_s: float, bottleneck: str
) -> None:
    taken = Cell().lived([2.0, 20.0] * 20 + [60.0, 60.0])
    calls = HistogramReading((call_s, 2 * call_s), (100, 0, 0), 100 * call_s)
    model = replace(taken.model, calls=100, duration=calls)
    active_s = 100 * (call_s + 0.05)
    driver = RolloutFigures(100, 100, 0, 0, 99, 0, 99.0, 0.0, active_s, most_active=100)

    found = diagnose_run([replace(taken, rollouts=driver, model=model)])

    assert found.bottleneck == bottleneck


def test_lag_is_weighed_against_calls_where_no_driver_is_seen() -> None:
    taken = Cell().lived([2.0, 20.0] * 20 + [60.0, 60.0])
    calls = HistogramReading((20.0, 40.0), (100, 0, 0), 2000.0)

    found = diagnose_run([replace(taken, model=replace(taken.model, calls=100, duration=calls))])

    assert found.bottleneck == "none"
