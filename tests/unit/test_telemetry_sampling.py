"""Lag is sampled free of resonance: what a loop is held is what its samples say, whatever the beat.

The clock is the test's: held work moves it on, and so does a loop that waits for its next timer.
"""

import asyncio
import contextlib
import selectors
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.telemetry.lags import Lags, lag_of, lag_of_samples
from nemo_gym.telemetry.machine import CoreWaits
from nemo_gym.telemetry.observer import (
    _acquire_process_observer,
    _release_process_observer,
    _sample,
)
from nemo_gym.telemetry.sampling import instants, wait_s
from support.meters import metering

SAMPLES = 1500


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time passes only where something waits for it, or holds it."""

    def __init__(self) -> None:
        self.now = 0.0
        outer = self

        class Waiting(selectors.DefaultSelector):
            def select(
                self, timeout: float | None = None
            ) -> list[tuple[selectors.SelectorKey, int]]:
                outer.now += timeout or 0.0
                return super().select(0)

        super().__init__(Waiting())

    def time(self) -> float:
        return self.now

    def hold(self, seconds: float) -> None:
        """Do synchronous work for so long."""
        self.now += seconds


def sampled(held_s: float, period_s: float, interval_s: float = 1.0, seed: int = 7) -> Lags:
    """Return the samples of a loop that is held for so long at the beginning of each period."""
    clock = Clock()

    async def work() -> None:
        beat = 0
        while True:
            clock.hold(held_s)
            beat += 1
            await asyncio.sleep(max(0.0, beat * period_s - clock.now))

    async def main() -> Lags:
        with metering(interval_s=interval_s) as metered:
            state = _acquire_process_observer(metered.meter)
            try:
                state.draw = Random(seed).random  # noqa: S311 - no secret
                state.core_waits = lambda: None
                sampling = asyncio.ensure_future(_sample(state, interval_s, "server", False))
                working = asyncio.ensure_future(work())
                await asyncio.sleep(SAMPLES * interval_s)
                for task in (sampling, working):
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
                return state.lags
            finally:
                _release_process_observer()

    with asyncio.Runner(loop_factory=lambda: clock) as runner:
        return runner.run(main())


@pytest.mark.parametrize("period_s", [0.1, 0.25, 0.5, 0.618, 1.0, 1.618, 2.0, 2.618, 3.0, 7.3])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_share_that_a_loop_is_held_is_told_whatever_its_beat(
    share: float, period_s: float
) -> None:
    lags = sampled(share * period_s, period_s)

    told = lag_of(lags.read(), lags.held)

    # The last 5 ms of each hold are not told from an idle loop.
    assert told.held_share == pytest.approx(share, abs=0.05 + 0.005 / period_s)
    assert told.mean_ms == pytest.approx(share**2 * period_s / 2 * 1000, rel=0.25)


def test_a_load_that_repeats_with_the_interval_is_not_met_in_step() -> None:
    lags = sampled(0.8, 1.0, interval_s=1.0)

    told = lag_of(lags.read(), lags.held)

    # Free for a fifth of the time, and late by 0 to 800 ms alike for the rest of it.
    assert told.p50_ms == pytest.approx(300, abs=40)
    assert told.p99_ms == pytest.approx(790, abs=15)


def test_a_hold_longer_than_the_interval_counts_for_every_instant_it_covers() -> None:
    lags = sampled(5.0, 10.0, interval_s=0.5)

    told = lag_of(lags.read(), lags.held)

    assert lags.read().count == pytest.approx(SAMPLES, abs=20)
    assert told.held_share == pytest.approx(0.5, abs=0.05)


def test_there_is_one_sample_an_interval_on_average() -> None:
    assert sampled(0.0, 1.0).read().count == pytest.approx(SAMPLES, abs=1)


def test_kept_and_counted_samples_tell_the_same_share() -> None:
    lags = Lags()
    for lag_ms in (0.3, 4.9, 5.0, 5.2, 80.0, 2e6):
        lags.record(lag_ms)

    assert lag_of(lags.read(), lags.held).held_share == 0.5
    assert lag_of_samples(lags.recent, lags.recent_held).held_share == 0.5
    assert lag_of_samples([]).held_share is None


def test_a_loop_that_had_no_core_was_not_held() -> None:
    lags = Lags()
    lags.record(90.0, coreless_ms=88.0)
    lags.record(90.0, coreless_ms=30.0)

    assert (lags.held, [*lags.recent], [*lags.recent_held]) == (1, [90.0, 90.0], [False, True])


@given(st.randoms(use_true_random=False), st.floats(0, 1e9), st.floats(1e-3, 3600))
def test_each_interval_has_one_instant_and_eight_in_a_row_are_at_all_parts_of_theirs(
    random: Random, began: float, interval: float
) -> None:
    found = [
        (one - began) / interval for one in islice(instants(began, interval, random.random), 32)
    ]

    assert all(number - 1e-3 <= one <= number + 1 + 1e-3 for number, one in enumerate(found))
    for first in range(0, 32, 8):
        offsets = sorted(found[first + n] - (first + n) for n in range(8))
        assert all(n - 1e-2 <= offset * 8 <= n + 1 + 1e-2 for n, offset in enumerate(offsets))


def test_every_moment_of_an_interval_is_as_likely_to_be_met() -> None:
    draw = Random(3).random  # noqa: S311 - no secret
    firsts = [next(instants(0.0, 1.0, draw)) for _ in range(4000)]

    for part in range(10):
        met = sum(part / 10 <= first < (part + 1) / 10 for first in firsts)
        assert met == pytest.approx(400, abs=80)


@pytest.mark.parametrize(
    ("waited_s", "turns", "wait"),
    [(0.14, 1, 0.14), (0.14, 3, 0.14), (0.3, 60, 0.02), (0.0, 9, 0.0), (0.1, 0, 0.1)],
    ids=["only-this-wake-up", "few", "one-of-many", "none", "no-turn-counted"],
)
def test_of_the_waits_for_a_core_one_may_be_that_of_the_sample(
    waited_s: float, turns: int, wait: float
) -> None:
    before, after = CoreWaits(5.0, 100), CoreWaits(5.0 + waited_s, 100 + turns)

    assert wait_s(before, after) == pytest.approx(wait)
    assert wait_s(None, after) == wait_s(before, None) == 0.0
