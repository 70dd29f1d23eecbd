"""Rates of `gym top` from its first look on: true of the run, or not shown."""

from dataclasses import replace

import pytest

from nemo_gym.cli.top import History
from nemo_gym.telemetry.figures import FigureSnapshot, RolloutFigures, ServerFigures
from nemo_gym.telemetry.figures import snapshot as taken_now
from nemo_gym.telemetry.run_view import RunView
from nemo_gym.telemetry.series import HistogramReading

AT_ONCE, CALL_S, START_S = 12, 4, 7.0
TAKEN = taken_now("cell-0")


def look(ran_s: float, *, driven: bool = True, before: int = 0) -> list[FigureSnapshot]:
    """Return a run whose calls begin twelve at once and take four seconds each, `ran_s` old.

    Its process is seven seconds older; with calls `before` it, older still.
    """
    calls = AT_ONCE * int(ran_s // CALL_S)
    rollouts = RolloutFigures(
        planned=300, offered=300, resident=12, active=12, finished=calls, failed=0,
        reward_total=0.0, waited_s=0.0, active_s=0.0, most_active=12, ran_s=ran_s,
    )  # fmt: skip
    done = before + calls
    took = HistogramReading((3.99, 4.01), (0, done, 0), 4.0 * done)
    tokens = {"tokens_in": 10 * done, "tokens_out": 5 * done}
    age = ran_s + START_S + before
    return [
        replace(
            TAKEN,
            taken_at=1000.0 + ran_s,
            uptime_s=age,
            rollouts=rollouts if driven else None,
            servers=(ServerFigures("policy_model", 12, done + 12, 0),),
            model=replace(TAKEN.model, calls=done, in_flight=12, duration=took, **tokens),  # type: ignore[arg-type]
        )
    ]


def watch(history: History, joined_s: float, seconds: int, **about: bool | int) -> list[RunView]:
    """Return what is shown once a second, from `joined_s` after the run began."""
    looks = [joined_s + second for second in range(seconds)]
    return [history.add(now, look(now, **about)) for now in looks]  # type: ignore[arg-type]


@pytest.mark.parametrize("joined_s", [0.1, 3.9, 4.2, 57.0])
def test_rates_of_a_run_do_not_jump_however_late_it_is_watched(joined_s: float) -> None:
    views = watch(History(whole=True), joined_s, 60)

    begun = [view for view in views if view.model_calls]
    rates = [view.model_rate or 0.0 for view in begun]
    paces = [view.rollouts.rate or 0.0 for view in begun if view.rollouts]
    # Three a second, seen up to a second late, and of 20 s at times a burst more.
    assert 2.4 <= min(rates) <= max(rates) <= 3.6
    assert 2.4 <= min(paces) <= max(paces) <= 3.6


def test_a_run_that_just_began_counts_from_its_begin_and_not_from_its_process_or_the_first_look(
) -> None:  # fmt: skip
    history = History(whole=True)

    *_, view = watch(history, 0.0, 9)

    assert (view.model_rate, view.tokens_in_rate, view.tokens_out_rate) == (3.0, 30.0, 15.0)
    assert view.rollouts is not None
    assert (view.rollouts.rate, view.rollouts.eta_s) == (3.0, 92.0)
    assert view.servers[0].rate == 36 / 8
    assert history.rates == "since the run began"


def test_servers_that_are_older_than_the_run_show_no_rates_until_there_is_enough_to_tell() -> None:
    history = History()

    views = watch(history, 0.5, 21, before=90_000)

    unknown = [view for view in views if view.model_rate is None]
    known = [view.model_rate for view in views if view.model_rate is not None]
    assert len(unknown) == 8  # two calls take eight seconds
    assert {view.servers[0].rate for view in unknown} == {None}
    assert 2.0 <= min(known) <= max(known) <= 3.7
    assert all(view.rollouts and view.rollouts.rate is not None for view in views)
    assert history.rates == "of the last 20 s"


def test_servers_without_a_driver_show_no_rates_at_first_either() -> None:
    history = History()

    first, *_, last = watch(history, 0.5, 9, driven=False, before=10)

    assert (first.model_rate, first.tokens_in_rate, first.servers[0].rate) == (None, None, None)
    assert last.model_rate == 3.0
    assert history.rates == "of the last 8 s"


def test_a_run_that_stands_still_is_slower_from_when_the_next_calls_should_have_ended() -> None:
    history = History(whole=True)

    watch(history, 0.0, 5)
    [stuck] = look(4.0)
    counts = stuck.rollouts
    assert counts is not None
    views = [
        history.add(ran_s, [replace(stuck, rollouts=replace(counts, ran_s=ran_s))])
        for ran_s in (6.0, 8.0, 12.0, 16.0)
    ]

    assert [view.model_rate for view in views] == [3.0, 3.0, 1.5, 1.0]
    assert [view.rollouts.rate for view in views if view.rollouts] == [3.0, 3.0, 1.5, 1.0]
