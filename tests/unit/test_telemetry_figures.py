"""Figures of a process, carried as JSON, and a run made of several."""

from dataclasses import replace

import pytest

from nemo_gym.telemetry import live
from nemo_gym.telemetry.diagnosis import Figures
from nemo_gym.telemetry.figures import (
    CaptureFigures,
    FigureSnapshot,
    LoopFigures,
    ModelFigures,
    RolloutFigures,
    ServerFigures,
    from_json,
    snapshot,
    to_json,
)
from nemo_gym.telemetry.live import live_counts, server_counts
from nemo_gym.telemetry.model_calls import model_call_started
from nemo_gym.telemetry.observer import observe_event_loop
from nemo_gym.telemetry.run_view import diagnose_run, figures_of, view_run
from nemo_gym.telemetry.series import HistogramReading
from support.meters import metering

SECONDS = HistogramReading((1.0, 2.0, 4.0), (0, 0, 0, 0), 0.0)
MS = HistogramReading((1.0, 10.0, 100.0), (0, 0, 0, 0), 0.0)
MODEL = ModelFigures(
    calls=0,
    in_flight=0,
    errors=0,
    retries=0,
    tokens_in=0,
    tokens_out=0,
    duration=SECONDS,
    tool_calls=0,
    tool_errors=0,
    connection_waits=0,
    connection_waited_s=0.0,
)
LOOP = LoopFigures(
    lag_p50_ms=1.0,
    lag_p99_ms=5.0,
    lag_mean_ms=1.5,
    gc_paused_ms=0.0,
    gc_collections=0,
    cpu_s=0.0,
    cpu_wait_s=0.0,
    machine_busy_s=0.0,
    tree_used_s=0.0,
    rss_bytes=100,
    threads=3,
    observed_s=10.0,
)
ROLLOUTS = RolloutFigures(
    planned=100,
    offered=40,
    resident=20,
    active=10,
    finished=18,
    failed=2,
    reward_total=9.0,
    waited_s=0.0,
    active_s=0.0,
)


def process(name: str, taken_at: float = 10.0, **changes: object) -> FigureSnapshot:
    base = FigureSnapshot(
        process=name,
        pid=hash(name) % 1000,
        taken_at=taken_at,
        uptime_s=taken_at,
        rollouts=None,
        servers=(),
        model=MODEL,
        capture=CaptureFigures(0, 0, 0, MS),
        loop=None,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def test_figures_travel_as_json_unchanged() -> None:
    sent = [
        process("driver", rollouts=ROLLOUTS, loop=LOOP),
        process("cell-0", servers=(ServerFigures("mcqa", 1, 2, 3),)),
    ]

    assert from_json(to_json(sent)) == sent


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"processes": [{}]}', b'{"processes": 3}'])
def test_what_is_no_figures_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_json(body)


def test_counts_show_always_and_readings_only_while_observed() -> None:
    server = server_counts("figures-test")
    server.in_flight += 2
    live_counts().tool_calls += 1

    taken = snapshot("cell-0")

    assert ServerFigures("figures-test", 2, 0, 0) in taken.servers
    assert taken.model.tool_calls >= 1
    assert taken.loop is None


async def test_an_observed_process_shows_lag_cpu_and_memory() -> None:
    with metering(interval_s=0.002):
        async with observe_event_loop("server"):
            import asyncio  # noqa: PLC0415

            await asyncio.sleep(0.02)
            taken = snapshot("cell-0")

    assert taken.loop is not None
    assert taken.loop.lag_p99_ms is not None
    assert taken.loop.rss_bytes > 1_000_000
    assert taken.loop.cpu_s > 0
    assert 0 <= (taken.loop.machine_busy_s or 0) < 5


def test_rates_are_counted_between_two_looks() -> None:
    def model(calls: int, tokens: int) -> ModelFigures:
        return replace(MODEL, calls=calls, tokens_in=tokens, tokens_out=2 * tokens)

    earlier = [process("a", 10.0, model=model(10, 100)), process("b", 10.0, model=model(5, 0))]
    now = [process("a", 15.0, model=model(30, 200)), process("b", 15.0, model=model(10, 50))]

    view = view_run(now, earlier)

    assert (view.model_calls, view.model_rate) == (40, 5.0)
    assert (view.tokens_in_rate, view.tokens_out_rate) == (30.0, 60.0)


def test_the_rest_of_a_run_takes_as_long_as_the_rate_says() -> None:
    earlier = [process("driver", 10.0, rollouts=replace(ROLLOUTS, finished=8, failed=2))]
    now = [process("driver", 20.0, rollouts=ROLLOUTS)]

    view = view_run(now, earlier)

    assert view.rollouts is not None
    assert (view.rollouts.rate, view.rollouts.eta_s) == (1.0, 80.0)
    assert view.rollouts.mean_reward == 0.5


def test_a_pace_is_of_the_run_though_its_servers_are_older() -> None:
    counts = replace(ROLLOUTS, ran_s=2.0)
    now = [process("parent", 1000.0), process("driver", 6.0, rollouts=counts)]

    view = view_run(now)

    assert view.rollouts is not None
    assert (view.rollouts.rate, view.rollouts.eta_s) == (10.0, 8.0)  # 20 ended, 80 are left


def test_a_pace_is_of_the_time_between_two_looks() -> None:
    before = [process("driver", 6.0, rollouts=replace(ROLLOUTS, ran_s=2.0))]
    now = [process("driver", 10.0, rollouts=replace(ROLLOUTS, ran_s=6.0, finished=38))]

    view = view_run(now, before)

    assert view.rollouts is not None
    assert view.rollouts.rate == 5.0


def test_rollouts_of_earlier_sessions_are_finished_but_make_no_rate() -> None:
    counts = replace(ROLLOUTS, finished=58, finished_before=40, reward_total=29.0)
    now = [process("driver", 10.0, rollouts=counts)]

    view = view_run(now)

    assert view.rollouts is not None
    assert view.rollouts.counts.finished == 58
    assert view.rollouts.rate == 2.0  # 18 finished and 2 failed in 10 s
    assert view.rollouts.eta_s == 20.0  # 40 of 100 are left
    assert view.rollouts.mean_reward == 0.5


def test_figures_of_a_run_that_knows_no_earlier_sessions_are_read_too() -> None:
    body = to_json([process("driver", rollouts=ROLLOUTS)]).replace(b', "finished_before": 0', b"")

    [read] = from_json(body)

    assert read.rollouts == ROLLOUTS


def test_a_window_in_which_nothing_ended_falls_back_on_the_whole_run() -> None:
    calls = HistogramReading((1.0, 2.0, 4.0), (0, 0, 10, 0), 30.0)
    model = replace(MODEL, calls=10, duration=calls)
    driver = replace(ROLLOUTS, waited_s=61.0, active_s=39.0)
    earlier = [process("driver", 50.0, rollouts=driver, model=model)]
    now = [process("driver", 60.0, rollouts=driver, model=model)]

    view = view_run(now, earlier)

    assert view.model_rate == 0.0
    assert view.model_p50_s == 3.0
    assert view.diagnosis.bottleneck == "admission"
    assert view.rollouts is not None
    assert view.rollouts.eta_s == 240.0  # 20 ended in 60 s, 80 are left


def test_what_is_not_planned_has_no_end_in_sight() -> None:
    now = [process("driver", 20.0, rollouts=replace(ROLLOUTS, planned=None))]

    view = view_run(now)

    assert view.rollouts is not None
    assert view.rollouts.eta_s is None


def test_instances_of_one_server_are_one_line() -> None:
    now = [
        process("cell-0", servers=(ServerFigures("mcqa", 3, 100, 1), ServerFigures("m", 1, 1, 0))),
        process("cell-1", servers=(ServerFigures("mcqa", 4, 50, 0),)),
    ]

    view = view_run(now)

    shown = [(s.name, s.in_flight, s.rate, s.errors) for s in view.servers]
    assert shown == [("mcqa", 7, 15.0, 1), ("m", 1, 0.1, 0)]


def test_shares_of_gc_and_cpu_are_of_the_time_between_two_looks() -> None:
    busy = replace(LOOP, gc_paused_ms=500.0, cpu_s=4.0, cpu_wait_s=1.0, machine_busy_s=2.5)
    busy = replace(busy, tree_used_s=1.5)
    earlier, now = [process("a", 10.0, loop=LOOP)], [process("a", 15.0, loop=busy)]

    [one] = view_run(now, earlier).processes

    assert (one.gc_share, one.cpu_share, one.cpu_wait_share) == (0.1, 0.8, 0.2)
    assert one.machine_busy_share == 0.5
    assert one.tree_share == 0.3


def test_a_process_without_telemetry_shows_no_readings() -> None:
    view = view_run([process("a")])

    [one] = view.processes
    assert (one.lag_p99_ms, one.gc_share, one.cpu_share, one.rss_bytes) == (None,) * 4
    assert not view.observed


def test_no_process_is_a_view_of_nothing() -> None:
    view = view_run([])

    assert (view.rollouts, view.servers, view.model_rate, view.model_p50_s) == (
        None,
        (),
        None,
        None,
    )


def test_every_figure_of_a_diagnosis_comes_from_the_snapshots() -> None:
    calls = HistogramReading((1.0, 2.0, 4.0), (0, 0, 10, 0), 30.0)
    busy = replace(LOOP, gc_paused_ms=1.0, cpu_s=1.0, cpu_wait_s=1.0, machine_busy_s=1.0)
    busy = replace(busy, tree_used_s=1.0, lag_held_share=0.1)
    driver = replace(ROLLOUTS, waited_s=61.0, active_s=39.0, most_active=10, ran_s=10.0)
    driver = replace(driver, writing_s=1.0)
    model = replace(MODEL, calls=10, duration=calls, retried_s=1.0, retries=1, local_slots=2)
    model = replace(model, failures={"rate_limit": 1}, connection_waits_to={"a": 1.0})
    model = replace(model, load_calls=(9, 0, 0, 10, *[0] * 12))
    model = replace(model, load_seconds=(9.0, 0.0, 0.0, 27.0, *[0.0] * 12))
    capture = CaptureFigures(1, 1, 0, HistogramReading((1.0, 10.0, 100.0), (0, 1, 0, 0), 5.0))

    figures = figures_of([process("d", rollouts=driver, loop=busy, model=model, capture=capture)])

    assert [name for name in Figures.__dataclass_fields__ if getattr(figures, name) is None] == [
        "shared_with"
    ]


def test_a_run_that_waited_for_admission_is_diagnosed_so_at_its_end() -> None:
    calls = HistogramReading((1.0, 2.0, 4.0), (0, 0, 10, 0), 30.0)
    driver = replace(ROLLOUTS, waited_s=61.0, active_s=39.0)

    found = diagnose_run(
        [
            process(
                "driver", rollouts=driver, loop=LOOP, model=replace(MODEL, calls=10, duration=calls)
            )
        ]
    )

    assert found.bottleneck == "admission"
    assert "waited 61 %" in str(found)
    assert "provider p50 3.0 s" in str(found)


def test_the_start_of_a_process_is_no_bottleneck() -> None:
    collecting = replace(LOOP, gc_paused_ms=500.0, observed_s=1.0)
    later = replace(collecting, gc_paused_ms=5000.0, observed_s=10.0)

    assert diagnose_run([process("driver", 1.0, loop=collecting)]).bottleneck == "none"
    assert diagnose_run([process("driver", 10.0, loop=later)]).bottleneck == "gc"


def test_what_servers_did_for_an_earlier_run_is_no_part_of_a_diagnosis() -> None:
    slow = HistogramReading((1.0, 2.0, 4.0), (0, 0, 10, 0), 40.0)
    driver = process("driver", rollouts=replace(ROLLOUTS, waited_s=0.0, active_s=4.0))
    before = process("cell", 50.0, model=replace(MODEL, calls=10, errors=9, duration=slow))
    after = process(
        "cell",
        60.0,
        model=replace(
            MODEL,
            calls=20,
            errors=9,
            duration=slow.plus(HistogramReading((1.0, 2.0, 4.0), (10, 0, 0, 0), 2.0)),
        ),
    )

    assert diagnose_run([driver, after]).bottleneck == "provider_errors"
    assert diagnose_run([driver, after], [before]).bottleneck == "none"


def test_rollouts_and_calls_under_way_count_as_far_as_they_are() -> None:
    """A run of hour-long rollouts has something to say before the first of them has ended."""
    driver = process("driver", rollouts=replace(ROLLOUTS, finished=0, failed=0, active_s=100.0))
    calls = replace(MODEL, in_flight=10, open_s=30.0, calls=50)
    model = replace(calls, duration=HistogramReading((1.0, 2.0, 4.0), (0, 50, 0, 0), 60.0))

    found = diagnose_run([driver, process("cell", model=model)])

    assert found.bottleneck == "provider"
    assert "the provider took 90 % of the running time" in found.evidence


def test_lag_is_told_of_the_process_whose_loop_is_late_most_not_of_the_longest_pause() -> None:
    paused = replace(LOOP, lag_p99_ms=1030.0, lag_mean_ms=2.0)
    blocked = replace(LOOP, lag_p99_ms=300.0, lag_mean_ms=60.0)
    servers = tuple(ServerFigures(name, 0, 9, 0) for name in ("mcqa", "agent", "model", "judge"))

    found = diagnose_run(
        [process("driver", loop=paused), process("cell-0", loop=blocked, servers=servers)]
    )

    assert found.bottleneck == "event_loop"
    assert found.evidence[0] == "loop lag p99 300 ms in cell-0 (mcqa, agent, model and 1 more)"


def test_nothing_slows_down_a_run_that_only_puts_its_results_together() -> None:
    blocked = replace(LOOP, lag_p99_ms=1030.0, lag_mean_ms=60.0)
    over = replace(ROLLOUTS, resident=0, active=0, finished=97, failed=3)

    said = view_run([process("driver", rollouts=over, loop=blocked)]).diagnosis

    assert str(said) == "every rollout has ended: the results are being put together"


def test_waits_between_tries_are_no_latency_of_the_provider_but_are_told() -> None:
    live._reset()
    for reasons in ((), (), ("429", "429")):
        with model_call_started("openai", "m") as call:
            for reason in reasons:
                call.retried(reason)

    taken = snapshot("cell-0")
    told = replace(taken.model, retried_s=60.0, retries=0)
    driver = process("driver", rollouts=replace(ROLLOUTS, active_s=100.0))
    said = str(diagnose_run([driver, replace(taken, model=told)]))

    assert (taken.model.calls, taken.model.duration.count) == (3, 2)
    assert 0 < taken.model.retried_s < 1
    assert "60 % in calls tried again, waits between tries included" in said
