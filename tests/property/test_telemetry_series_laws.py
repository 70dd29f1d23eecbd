"""Plain histograms and counters: nothing is lost, and the number of series is bounded."""

import math
import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.telemetry.live import LIVE_DURATION_BOUNDARIES_S
from nemo_gym.telemetry.series import OTHER, CounterSeries, HistogramSeries, PlainHistogram

BOUNDS = (0.5, 1.0, 10.0, 100.0)
readings = st.lists(st.floats(min_value=0, max_value=1e6), max_size=60)


@given(readings)
def test_every_reading_is_in_exactly_the_bucket_that_its_bounds_say(values: list[float]) -> None:
    histogram = PlainHistogram(BOUNDS)

    for value in values:
        histogram.record(value)

    low = -1.0
    for bound, count in zip((*BOUNDS, float("inf")), histogram.read().counts, strict=True):
        assert count == sum(low < value <= bound for value in values)
        low = bound
    assert histogram.read().total == pytest.approx(sum(values))  # how it rounds is Python's


@given(readings, readings)
def test_what_was_added_since_is_what_was_recorded_since(
    before: list[float], after: list[float]
) -> None:
    histogram, only_after = PlainHistogram(BOUNDS), PlainHistogram(BOUNDS)
    for value in before:
        histogram.record(value)
    earlier = histogram.read()
    for value in after:
        histogram.record(value)
        only_after.record(value)

    assert histogram.read().since(earlier).counts == only_after.read().counts
    assert only_after.read().plus(earlier).counts == histogram.read().counts


@given(readings.filter(bool), st.floats(min_value=0, max_value=1))
def test_a_quantile_lies_in_the_bucket_of_the_reading_of_that_rank(
    values: list[float], q: float
) -> None:
    histogram = PlainHistogram(BOUNDS)
    for value in values:
        histogram.record(value)

    found = histogram.read().quantile(q)

    ordered = sorted(values)
    exact = ordered[max(0, math.ceil(len(ordered) * q) - 1)]
    edges = (0.0, *BOUNDS)
    low = max(edge for edge in edges if edge <= min(exact, BOUNDS[-1]))
    high = min((bound for bound in BOUNDS if bound >= exact), default=BOUNDS[-1])
    assert found is not None
    assert low - 1e-9 <= found <= high + 1e-9 or exact in edges


@given(
    st.lists(st.floats(min_value=0.00101, max_value=1000), min_size=1, max_size=60),
    st.floats(min_value=0, max_value=1),
)
def test_a_duration_that_is_shown_is_off_by_a_fiftieth_at_most(
    values: list[float], q: float
) -> None:
    histogram = PlainHistogram(LIVE_DURATION_BOUNDARIES_S)
    for value in values:
        histogram.record(value)

    found = histogram.read().trimmed().quantile(q)

    exact = sorted(values)[max(0, math.ceil(len(values) * q) - 1)]
    assert found == pytest.approx(exact, rel=0.0201)


@pytest.mark.parametrize("seconds", [0.5, 1.0, 2.0, 5.0, 60.0])
def test_calls_of_a_round_time_are_not_shown_as_shorter_ones(seconds: float) -> None:
    histogram = PlainHistogram(LIVE_DURATION_BOUNDARIES_S)
    for number in range(1, 19):
        histogram.record(seconds * (1 + number / 1000))

    found = histogram.read().quantile(0.5)

    assert found is not None
    assert seconds <= found <= seconds * 1.02


@given(readings, readings, readings)
def test_trimmed_readings_add_up_and_subtract_like_whole_ones(
    before: list[float], after: list[float], elsewhere: list[float]
) -> None:
    histogram, other = PlainHistogram(BOUNDS), PlainHistogram(BOUNDS)
    for value in before:
        histogram.record(value)
    earlier = histogram.read()
    for value in after:
        histogram.record(value)
    for value in elsewhere:
        other.record(value)
    now = histogram.read()

    found = now.trimmed().since(earlier.trimmed()).plus(other.read().trimmed())

    whole = now.since(earlier).plus(other.read())
    assert found.total == pytest.approx(whole.total)
    assert found.counts[-1] == whole.counts[-1]
    held = dict(zip(found.bounds, found.counts, strict=False))
    for bound, count in zip(whole.bounds, whole.counts, strict=False):
        assert held.get(bound, 0) == count
    for q in (0.0, 0.5, 0.99, 1.0):
        assert found.quantile(q) == pytest.approx(whole.quantile(q))


def test_no_reading_has_no_quantile() -> None:
    assert PlainHistogram(BOUNDS).read().quantile(0.5) is None


@given(st.lists(st.text(max_size=8), max_size=400))
def test_whatever_values_come_the_series_are_bounded_and_the_sum_is_exact(
    values: list[str],
) -> None:
    counter = CounterSeries("c", "{c}", ("model",))
    histogram = HistogramSeries("h", "s", BOUNDS, ("model",))

    for value in values:
        counter.add(2, value)
        histogram.record(0.7, value)

    counts, held = counter.read(), histogram.read()
    assert sum(count for _, count in counts) == 2 * len(values)
    assert sum(reading.count for _, reading in held) == len(values)
    assert max(len(counts), len(held)) <= counter.described.limit + 1


def test_what_is_beyond_the_limit_is_counted_as_other() -> None:
    counter = CounterSeries("c", "{c}", ("model",))
    histogram = HistogramSeries("h", "s", BOUNDS, ("model",))

    for number in range(1000):
        counter.add(1, f"model-{number}")
        histogram.record(1.0, f"model-{number}")

    beyond = 1000 - counter.described.limit
    assert {labels["model"]: n for labels, n in counter.read()}[OTHER] == beyond
    assert {labels["model"]: r.count for labels, r in histogram.read()}[OTHER] == beyond


def test_a_value_that_is_not_known_leaves_its_attribute_out() -> None:
    histogram = HistogramSeries("h", "s", BOUNDS, ("model", "error.type"))

    histogram.record(1.0, "m", None)

    assert [labels for labels, _ in histogram.read()] == [{"model": "m"}]


def test_updates_from_several_threads_add_up_exactly() -> None:
    counter = CounterSeries("c", "{c}", ("model",))
    histogram = HistogramSeries("h", "s", BOUNDS, ("model",))

    def work() -> None:
        for number in range(20_000):
            counter.add(1, "m")
            histogram.record(float(number % 7), "m")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert counter.read() == [({"model": "m"}, 80_000)]
    assert histogram.read()[0][1].count == 80_000


@given(
    st.lists(
        st.tuples(
            st.integers(0, 600).map(str),
            st.sampled_from(["vllm", "openai", None]),
            st.sampled_from(["timeout", "auth", None]),
        ),
        max_size=900,
    ),
    st.booleans(),
)
def test_values_from_fixed_lists_are_kept_however_many_names_there_are(
    calls: list[tuple[str, str | None, str | None]], all_of_them: bool
) -> None:
    keys = ("model", "provider", "error")
    counter = CounterSeries("c", "{c}", keys, unbounded=("model",))
    histogram = HistogramSeries("h", "s", BOUNDS, keys, unbounded=("model",))
    if all_of_them:  # beyond the limit in any case
        calls = [(str(number), "vllm", None) for number in range(300)] + calls

    for call in calls:
        counter.add(1, *call)
        histogram.record(1.0, *call)

    expected = Counter(call[1:] for call in calls)
    counted: Counter[tuple[str | None, str | None]] = Counter()
    for labels, number in counter.read():
        counted[labels.get("provider"), labels.get("error")] += number
    assert counted == expected
    assert [labels for labels, _ in histogram.read()] == [labels for labels, _ in counter.read()]
    assert len(counter.read()) <= counter.described.limit + 9


@given(st.lists(st.tuples(*[st.none() | st.integers(0, 9000).map(str)] * 3), max_size=100))
def test_values_that_should_be_bounded_and_are_not_make_no_more_series_either(
    last: list[tuple[str | None, ...]],
) -> None:
    counter = CounterSeries("c", "{c}", ("model", "provider", "error"), unbounded=("model",))

    for number in range(700):
        counter.add(1, f"m{number}", f"p{number}", None if number % 2 else "timeout")
    for values in last:
        counter.add(1, *values)

    read = counter.read()
    assert len(read) <= 2 * counter.described.limit + 8
    assert sum(count for _, count in read) == 700 + len(last)
    assert {"model": OTHER, "provider": OTHER} in [labels for labels, _ in read]
