"""Readings of several histograms taken together: each has its own, whichever is read first."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.telemetry.instruments import Silent
from nemo_gym.telemetry.plain_meter import AttributedHistogram
from nemo_gym.telemetry.recorded import Recorded
from nemo_gym.telemetry.together import together
from nemo_gym.telemetry.work import rollout_finished
from support.meters import metering

BOUNDS = (0.5, 1.0, 10.0, 100.0)
numbers = st.integers(0, 1000)
ended = st.tuples(st.sampled_from(["rewarded", "timeout", "agent_error"]), st.integers(0, 10**6))


class Noted:
    """An instrument of another meter; the third reading fails."""

    def __init__(self) -> None:
        self.readings: list[float] = []

    def record(self, reading: float) -> None:
        if len(self.readings) == 2:
            self.readings.append(-1)
            raise RuntimeError("full")
        self.readings.append(reading)


@given(st.lists(st.tuples(numbers, numbers), max_size=600), st.integers(0, 600), st.booleans())
def test_each_histogram_has_its_own_readings_whichever_is_read_first(
    readings: list[tuple[float, float]], alone: int, second_first: bool
) -> None:
    pair = [AttributedHistogram(name, "ms", BOUNDS) for name in ("a", "b")]
    apart = [AttributedHistogram(name, "ms", BOUNDS) for name in ("a", "b")]
    told = together(*pair)

    for reading in readings[:alone]:
        told.record(reading)
    told.record_all(readings[alone:])
    for reading in readings:
        for histogram, value in zip(apart, reading, strict=True):
            histogram.record(value)

    order: Sequence[int] = (1, 0) if second_first else (0, 1)
    for index in order:
        assert pair[index].read() == apart[index].read()


@pytest.mark.parametrize("other", [Silent(), Noted()])
def test_instruments_of_another_meter_are_told_at_once_and_one_that_fails_stops_none(
    other: Any,
) -> None:
    failing, ours = Noted(), AttributedHistogram("a", "ms", BOUNDS)
    told = together(failing, other, ours)

    told.record_all([(1, 2, 3), (4, 5, 6), (7, 8, 9)])
    told.record((10, 11, 12))

    assert failing.readings == [1, 4, -1, 10]
    [(_, held)] = ours.read()
    assert (held.count, held.total) == (4, 30)


@given(st.lists(ended, max_size=600), st.sampled_from(["rollouts_finished", "rollout_duration"]))
def test_rollouts_add_up_by_outcome_whichever_is_read_first(
    rollouts: list[tuple[str, int]], first: str
) -> None:
    with metering() as metered:
        for outcome, took_s in rollouts:
            rollout_finished(outcome, took_s)
        recorded = metered.exporting.recorded
        getattr(recorded, first).read()

    own = {outcome: [s for o, s in rollouts if o == outcome] for outcome, _ in rollouts}
    assert counts_of(recorded) == {outcome: len(took) for outcome, took in own.items()}
    held = {labels[OUTCOME]: (r.count, r.total) for labels, r in recorded.rollout_duration.read()}
    assert held == {o: (len(took), sum(took) * 1000) for o, took in own.items()}


OUTCOME = "nemo.gym.rollout.outcome"


def counts_of(recorded: Recorded) -> dict[str, int]:
    return {labels[OUTCOME]: count for labels, count in recorded.rollouts_finished.read()}
