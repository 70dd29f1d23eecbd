"""Counts that always run: time spent, ended or not."""

from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.telemetry.live import Ongoing, RolloutCounts, live_counts
from nemo_gym.telemetry.model_calls import model_call_started

SPANS = st.lists(
    st.tuples(st.integers(0, 1000), st.none() | st.integers(0, 1000)).map(
        lambda pair: (pair[0], None if pair[1] is None else pair[0] + pair[1])
    )
)
"""When something began, and when it ended; None: not yet."""


@given(SPANS, st.integers(2000, 3000))
def test_time_taken_is_the_sum_of_what_ended_and_of_what_is_under_way(
    spans: list[tuple[int, int | None]], now: int
) -> None:
    ongoing, things = Ongoing(), [object() for _ in spans]
    for thing, (began, _) in zip(things, spans, strict=True):
        ongoing.begin(thing, began)
    for thing, (_, ended) in zip(things, spans, strict=True):
        if ended is not None:
            ongoing.end(thing, ended)

    took = sum((now if ended is None else ended) - began for began, ended in spans)
    assert ongoing.total_s(now) == took


@given(st.lists(st.tuples(st.integers(0, 1000), st.booleans())), st.integers(2000, 3000))
def test_time_of_calls_under_way_is_theirs_alone(calls: list[tuple[int, bool]], now: int) -> None:
    live, before = live_counts(), len(live_counts().model_open)
    open_calls = []
    for began, ends in calls:
        call = model_call_started("openai", "m")
        call.started = began
        if ends:
            call.ended()
        else:
            open_calls.append(call)
    under_way, took_s = live.model_calls_in_flight, live.model_open_s(now)
    for call in open_calls:
        call.ended()

    assert under_way - before == len(open_calls)
    assert took_s == sum(now - call.started for call in open_calls)
    assert live.model_calls_in_flight == before


def test_a_second_end_and_the_end_of_what_never_began_count_nothing() -> None:
    ongoing, thing = Ongoing(), object()
    ongoing.begin(thing, 1.0)
    ongoing.end(thing, 3.0)

    ongoing.end(thing, 9.0)
    ongoing.end(object(), 9.0)

    assert ongoing.total_s(100.0) == 2.0


def test_a_run_begins_with_what_its_earlier_sessions_finished() -> None:
    counts = RolloutCounts()
    counts.offered, counts.finished, counts.failed = 9, 7, 2
    counts.waiting.begin(counts, 0.0)

    counts.begin(100, finished_before=40, reward_before=20.0)

    assert (counts.planned, counts.offered, counts.failed) == (100, 0, 0)
    assert (counts.finished, counts.finished_before, counts.reward_total) == (40, 40, 20.0)
    assert counts.waiting.total_s(5.0) == 0.0
