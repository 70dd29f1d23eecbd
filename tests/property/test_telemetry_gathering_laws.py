"""Readings that are counted many at a time: none is lost, none twice, and none is left unread."""

import math
import os
import sys
import threading
import tracemalloc
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.telemetry.ended_calls import EndedCall, EndedCalls
from nemo_gym.telemetry.live import (
    ConnectionWaits,
    LatencyByLoad,
    LiveCounts,
    counting,
    live_counts,
)
from nemo_gym.telemetry.model_calls import model_call_started
from nemo_gym.telemetry.recorded import Recorded
from nemo_gym.telemetry.series import (
    MOST_GATHERED,
    CounterSeries,
    Gathered,
    Gathering,
    HistogramSeries,
    PlainHistogram,
)
from support.meters import metering

BOUNDS = (0.5, 1.0, 10.0, 100.0)
readings = st.floats(min_value=0, max_value=1e6) | st.integers(0, 1000)
steps = st.lists(
    readings
    | st.lists(readings, min_size=MOST_GATHERED - 2, max_size=MOST_GATHERED + 2)
    | st.sampled_from(["read", "gather"]),
    max_size=20,
)
counts = st.none() | st.integers(0, 1000)
seconds = st.none() | st.floats(0, 100)
calls = st.tuples(
    st.tuples(st.just("openai"), st.sampled_from(["m", "n"])),
    seconds,
    seconds,
    st.none() | st.sampled_from(["timeout", "auth"]),
    st.none() | st.tuples(counts, counts, counts, counts, counts),
    st.integers(0, 70_000),
)
KINDS = ("input", "output", "cache_read", "cache_creation", "reasoning")


class Kept(Gathering[Any]):
    """Keeps what it is given to count."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: list[Any] = []
        self.while_counting: Callable[[], None] | None = None

    def _count(self, readings: list[Any]) -> None:
        if self.while_counting is not None:
            meanwhile, self.while_counting = self.while_counting, None
            meanwhile()
        self.counted += readings


@given(steps)
def test_a_read_sees_all_that_was_recorded_before_it(
    order: list[float | list[float] | str],
) -> None:
    histogram, known = PlainHistogram(BOUNDS), list[float]()

    for step in [*order, "read"]:
        if isinstance(step, str):
            if step == "gather":
                histogram.gather()
                continue
            found, expected = histogram.read(), [0] * (len(BOUNDS) + 1)
            for value in known:
                expected[bisect_left(BOUNDS, value)] += 1
            assert found.counts == tuple(expected)
            assert found.total == pytest.approx(sum(known))
        elif isinstance(step, list):
            histogram.record_all(step)
            known += step
        else:
            histogram.record(step)
            known.append(step)


@given(st.lists(st.integers(0, 2 * MOST_GATHERED), max_size=8))
def test_what_waits_to_be_counted_is_bounded(batches: list[int]) -> None:
    kept, given_ = Kept(), 0

    for size in batches:
        for number in range(size):
            kept.record(number)
            given_ += 1
            assert given_ - len(kept.counted) < MOST_GATHERED
        kept.record_all(range(size))
        given_ += size
        assert given_ - len(kept.counted) < MOST_GATHERED


def test_what_is_recorded_while_others_are_counted_comes_with_the_next() -> None:
    kept = Kept()
    kept.while_counting = lambda: kept.record("late")

    for number in range(MOST_GATHERED):
        kept.record(number)
    before = list(kept.counted)
    kept.gather()

    assert before == list(range(MOST_GATHERED))
    assert kept.counted == [*before, "late"]


def test_one_thread_counts_at_a_time_and_who_records_does_not_wait_for_it() -> None:
    kept, late = Kept(), range(MOST_GATHERED, 3 * MOST_GATHERED)
    other = threading.Thread(target=kept.gather)
    waited: list[bool] = []

    def meanwhile() -> None:
        other.start()
        for number in late:
            kept.record(number)
        other.join(0.05)
        waited.append(other.is_alive())

    kept.while_counting = meanwhile
    for number in range(MOST_GATHERED):
        kept.record(number)
    other.join()

    assert waited == [True]
    assert kept.counted == list(range(late.stop))


def test_counting_that_fails_reaches_nobody_and_the_next_are_counted() -> None:
    kept = Kept()

    def fail() -> None:
        raise OverflowError("int too large to convert to float")

    kept.while_counting = fail
    for number in range(MOST_GATHERED):
        kept.record(number)
    kept.record("next")
    kept.gather()

    assert kept.counted == ["next"]


@pytest.mark.parametrize("failing", ["always", "also"])
def test_of_two_that_count_one_that_fails_does_not_stop_the_other(failing: str) -> None:
    counted: dict[str, list[int]] = {"always": [], "also": []}

    def counter(name: str) -> Callable[[Sequence[int]], None]:
        def count(readings: Sequence[int]) -> None:
            if name == failing:
                raise ValueError(name)
            counted[name] += readings

        return count

    gathered = Gathered(counter("always"))
    gathered.tell(counter("also"))
    gathered.record_all(range(3))
    gathered.gather()

    assert counted == {"always": [0, 1, 2], "also": [0, 1, 2], failing: []}


def test_what_is_no_number_is_counted_once_and_ends() -> None:
    histogram = PlainHistogram(BOUNDS)

    histogram.record_all([math.nan, 200.0, math.nan, 0.1, 5.0, math.nan])

    assert histogram.read().count == 6


def test_threads_that_record_and_threads_that_read_add_up_exactly() -> None:
    kept, histogram = Kept(), PlainHistogram(BOUNDS)
    recording, each, interval = 4, 20_000, sys.getswitchinterval()
    running = threading.Event()

    def record(thread: int) -> None:
        for number in range(each):
            kept.record((thread, number))
            histogram.record(number % 7)

    def read() -> None:
        while not running.is_set():
            kept.gather()
            histogram.read()

    writers = [threading.Thread(target=record, args=(n,)) for n in range(recording)]
    readers = [threading.Thread(target=read) for _ in range(2)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in [*writers, *readers]:
            thread.start()
        for thread in writers:
            thread.join()
        running.set()
        for thread in readers:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    kept.gather()

    assert sorted(kept.counted) == [(t, n) for t in range(recording) for n in range(each)]
    assert histogram.read().count == recording * each


@given(st.lists(calls, min_size=1, max_size=60))
def test_calls_told_at_their_end_add_up_as_if_counted_one_by_one(ended: list[EndedCall]) -> None:
    recorded = Recorded()

    recorded.count_calls(ended)

    for model in {call[0][1] for call in ended}:
        own = [call[1:5] for call in ended if call[0][1] == model]
        took = [(seconds, error) for seconds, _, error, _ in own if seconds is not None]
        durations = counts_of(recorded.model_duration, model, "error.type")
        assert durations == Counter(error for _, error in took)
        errors = counts_of(recorded.model_errors, model, "error.type")
        assert errors == {error: n for error, n in durations.items() if error is not None}
        begun = [first for _, first, _, _ in own if first is not None]
        firsts = counts_of(recorded.model_first_chunk, model, "error.type")
        assert firsts == ({None: len(begun)} if begun else {})
        for index, kind in enumerate(KINDS):
            known = [n for *_, t in own if t is not None and (n := t[index]) is not None]
            totals = counts_of(recorded.model_tokens, model, "nemo.gym.token.kind")
            assert totals.get(kind) == (sum(known) if known else None)


def counts_of(
    series: HistogramSeries | CounterSeries, model: str, key: str
) -> dict[str | None, int]:
    return {
        labels.get(key): held if isinstance(held, int) else held.count
        for labels, held in series.read()
        if labels["gen_ai.request.model"] == model
    }


@given(st.lists(calls, min_size=1, max_size=60))
def test_the_live_counts_of_calls_are_the_same_together_and_one_by_one(
    ended: list[EndedCall],
) -> None:
    together, apart = LiveCounts(), LiveCounts()

    together.ended_calls.record_all(ended)
    together.ended_calls.gather()
    for call in ended:
        apart.ended_calls.record(call)
        apart.ended_calls.gather()

    own = [call[1:] for call in ended if call[1] is not None]
    assert together.model_calls == apart.model_calls == len(own)
    assert together.model_errors == apart.model_errors == sum(1 for c in own if c[2] is not None)
    assert together.tokens_in == apart.tokens_in
    assert together.tokens_out == apart.tokens_out
    assert together.model_retried_s == pytest.approx(apart.model_retried_s)
    assert together.model_by_load.calls == apart.model_by_load.calls
    assert together.model_by_load.seconds == pytest.approx(apart.model_by_load.seconds)
    assert together.model_duration.read().counts == apart.model_duration.read().counts
    assert sum(together.model_by_load.calls) == sum(1 for c in own if c[2] is None and c[4])


@given(st.lists(st.tuples(st.integers(1, 100_000), st.floats(0, 100)), max_size=60))
def test_latencies_by_load_are_the_same_together_and_one_by_one(
    taken: list[tuple[int, float]],
) -> None:
    together, apart = LatencyByLoad(), LatencyByLoad()

    together.record_all([load for load, _ in taken], [seconds for _, seconds in taken])
    for load, seconds in taken:
        apart.record(load, seconds)

    assert together.calls == apart.calls
    assert together.seconds == pytest.approx(apart.seconds)


@pytest.mark.parametrize("series", ["model_duration", "model_errors", "model_tokens"])
def test_each_instrument_of_calls_is_whole_whichever_is_read_first(series: str) -> None:
    call: EndedCall = (("openai", "m"), 0.5, None, "timeout", (1, 2, None, None, None), 1)
    with metering() as metered:
        counting().ended_calls.record(call)

        assert getattr(metered.exporting.recorded, series).read()


def test_calls_that_ended_before_metrics_were_exported_are_none_of_theirs() -> None:
    call: EndedCall = (("openai", "m"), 0.5, None, None, None, 1)
    before = live_counts().model_calls

    counting().ended_calls.record(call)
    with metering() as metered:
        counting().ended_calls.record(call)
    counting().ended_calls.record(call)

    [(_, held)] = metered.exporting.recorded.model_duration.read()
    assert held.count == 1
    assert live_counts().model_calls - before == 3


def test_a_call_that_a_finalizer_ends_while_who_counts_changes_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call: EndedCall = (("openai", "m"), 0.5, None, None, None, 1)
    counted: list[EndedCall] = []
    ended_calls, count_fresh = EndedCalls(counted.extend), Gathered[EndedCall]._count_fresh

    def interrupted(gathered: Gathered[EndedCall]) -> None:
        if not counted:
            ended_calls.record_all([call] * MOST_GATHERED)
        count_fresh(gathered)

    monkeypatch.setattr(Gathered, "_count_fresh", interrupted)
    telling = threading.Thread(target=ended_calls.tell, args=(None,), daemon=True)
    telling.start()
    telling.join(5)

    assert not telling.is_alive()
    ended_calls.gather()
    assert counted == [call] * len(counted)
    assert len(counted) >= MOST_GATHERED


def test_connections_at_hand_before_who_counts_changes_are_none_of_his() -> None:
    waited: list[float] = []
    also: list[float] = []
    waits = ConnectionWaits(waited.extend)

    waits.at_hand += 1
    waits.tell(also.extend)
    waits.at_hand += 2
    waits.record(0.5)
    waits.tell(None)
    waits.at_hand += 4
    waits.gather()
    waits.gather()

    assert sorted(also) == [0.0, 0.0, 0.5]
    assert sorted(waited) == [0.0] * 7 + [0.5]


def test_millions_of_connections_at_hand_take_no_memory_to_count() -> None:
    counted: list[int] = []
    waits = ConnectionWaits(lambda waited: counted.append(len(waited)))
    waits.at_hand = 3_000_001

    tracemalloc.start()
    waits.gather()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert sum(counted) == 3_000_001
    assert peak < 1 << 20


def test_a_forked_child_has_nothing_that_its_parent_recorded() -> None:
    live_counts().model_duration.record(1.0)
    told, tell = os.pipe()

    child = os.fork()
    if not child:
        os.write(tell, str(live_counts().model_duration.read().count).encode())
        os._exit(0)
    os.waitpid(child, 0)

    assert os.read(told, 10) == b"0"
    assert live_counts().model_duration.read().count >= 1


def test_a_call_that_was_under_way_at_a_fork_is_none_of_the_childs() -> None:
    call = model_call_started("openai", "m")
    told, tell = os.pipe()

    child = os.fork()
    if not child:
        call.ended()
        live = live_counts()
        os.write(tell, f"{live.model_calls} {live.model_calls_in_flight}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    call.ended()

    assert os.read(told, 10) == b"0 0"
