"""The observer: counts, pauses, lag, one set-up a process, failures that stop nothing."""

import asyncio
import gc
import subprocess
import sys
import threading
from typing import Any, cast

import pytest

from nemo_gym.telemetry import observer
from nemo_gym.telemetry.observer import (
    MeteredAdmission,
    RequestCounts,
    count_resident,
    driver_metrics,
    observe_event_loop,
    observer_settings,
    request_counts,
)
from support.meters import metering


async def until(holds: Any) -> None:
    """Let other tasks run until something holds; bounded."""
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


async def test_nothing_is_answered_while_nothing_exports() -> None:
    async with observe_event_loop("server"):
        answers = (observer_settings(), request_counts(), driver_metrics())

    assert answers == (None, None, None)


def test_while_off_neither_opentelemetry_nor_psutil_is_imported() -> None:
    program = (
        "import asyncio, sys\n"
        "from nemo_gym.telemetry import observer, work, model_calls, tracing, figures\n"
        "from nemo_gym.telemetry.providers import start_telemetry\n"
        "handle = start_telemetry({}, service_name='s', instance='i')\n"
        "async def main():\n"
        "    async with observer.observe_event_loop('server'):\n"
        "        work.capture_committed(1, 2, 0.1)\n"
        "        model_calls.model_call_started('openai', 'm', stream=False).ended()\n"
        "        with tracing.span('x'): tracing.inject([])\n"
        "        figures.snapshot('p')\n"
        "asyncio.run(main())\n"
        "handle.shutdown()\n"
        "print([m for m in sys.modules if m.startswith(('opentelemetry', 'psutil', 'grpc'))])\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )

    assert (done.stdout.strip(), done.stderr) == ("[]", "")


async def test_the_settings_are_answered_while_exporting() -> None:
    with metering(interval_s=0.25, count_tasks=True):
        settings = observer_settings()

    assert settings == (0.25, True)


async def test_what_ten_thousand_tasks_add_to_the_totals_reaches_the_instruments_exactly() -> None:
    async def request(number: int) -> None:
        counts = request_counts()
        assert counts is not None
        counts.in_flight += 1
        await asyncio.sleep(0)
        counts.count_response(200 if number % 4 else 503)
        if number % 10 == 0:
            counts.count_cancellation("/run", response_started=number % 20 == 0)
        counts.in_flight -= 1

    with metering() as metered:
        async with observe_event_loop("server"):
            await asyncio.gather(*(request(number) for number in range(10_000)))
            responses = metered.values("gym.server.responses_total")
            cancelled = metered.values("gym.server.requests.cancelled_total")
            in_flight = metered.values("gym.server.requests.in_flight")

    assert responses == {(200,): 7500, (503,): 2500}
    assert cancelled == {
        ("/run", "after_response_start"): 500,
        ("/run", "before_response_start"): 500,
    }
    assert in_flight == {(): 0}


def test_a_caller_that_passes_raw_paths_makes_a_bounded_number_of_series() -> None:
    counts = RequestCounts()

    for number in range(5000):
        counts.count_cancellation(f"/rollout/{number}", response_started=False)

    assert counts.cancelled == sum(counts.cancelled_by_route_and_phase.values()) == 5000
    assert len(counts.cancelled_by_route_and_phase) <= 1001


async def test_the_lag_of_a_loop_held_by_synchronous_work_is_recorded() -> None:
    with metering(interval_s=0.01) as metered:
        async with observe_event_loop("driver"):
            state = driver_metrics()
            assert state is not None
            await until(lambda: state.lags.recent)
            hold = asyncio.get_running_loop().time() + 0.08
            while asyncio.get_running_loop().time() < hold:
                pass
            await until(lambda: max(state.lags.recent) > 50)
            [point] = metered.points("gym.event_loop.lag_ms")

    assert dict(point.attributes) == {"nemo.gym.event_loop": "driver"}
    assert point.max > 50
    assert tuple(point.explicit_bounds) == observer.EVENT_LOOP_LAG_BOUNDARIES_MS


@pytest.mark.parametrize("count_tasks", [True, False])
async def test_tasks_are_counted_only_when_asked_for(count_tasks: bool) -> None:
    with metering(interval_s=0.002, count_tasks=count_tasks) as metered:
        async with observe_event_loop("server"):
            state = driver_metrics()
            assert state is not None
            await until(lambda: len(state.lags.recent) > 2)
            tasks = metered.points("gym.event_loop.tasks")

    assert bool(tasks) is count_tasks


async def test_collections_and_their_pauses_are_recorded_by_generation() -> None:
    with metering(interval_s=0.002) as metered:
        async with observe_event_loop("server"):
            state = driver_metrics()
            assert state is not None
            gc.collect()
            await until(lambda: not state.gc._pauses)
            totals = metered.values("gym.gc.collections_total")
            pauses = {
                p.attributes["nemo.gym.gc.generation"]: p.count
                for p in metered.points("gym.gc.pause_duration_ms")
            }

    assert totals[(2,)] >= 1
    assert pauses[2] >= 1


def test_a_collection_started_inside_the_draining_of_pauses_does_not_deadlock() -> None:
    class Collecting(observer._GcRecorder):
        def __setattr__(self, name: str, value: object) -> None:
            if name == "_pauses":
                gc.collect()
            super().__setattr__(name, value)

    recorder = Collecting()
    drained: list[tuple[int, float]] = []

    def drain() -> None:
        for _ in range(20):
            drained.extend(recorder.drain_pauses())

    # What earlier tests left alive is not what this one is about, and takes long to look through.
    gc.freeze()
    gc.callbacks.append(recorder)
    try:
        draining = threading.Thread(target=drain, daemon=True)
        draining.start()
        draining.join(60)
    finally:
        gc.callbacks.remove(recorder)
        gc.unfreeze()

    assert not draining.is_alive()
    assert len(drained) + len(recorder._pauses) == sum(recorder.collections) >= 20


def test_pauses_wait_in_a_bounded_buffer_and_totals_go_on() -> None:
    recorder = observer._GcRecorder()

    for _ in range(observer._MAX_BUFFERED_GC_PAUSES + 5):
        recorder("start", {"generation": 0})
        recorder("stop", {"generation": 0, "collected": 2, "uncollectable": 1})

    assert len(recorder.drain_pauses()) == 10_000
    assert recorder.drain_pauses() == []
    assert (recorder.collected[0], recorder.uncollectable[0]) == (20_010, 10_005)


async def test_two_loops_share_one_set_up_and_the_last_removes_it() -> None:
    callbacks = len(gc.callbacks)
    with metering():
        async with observe_event_loop("server"):
            first = driver_metrics()
            async with observe_event_loop("driver"):
                assert driver_metrics() is first
                during = len(gc.callbacks)
            after_one = driver_metrics()

    assert (during, len(gc.callbacks)) == (callbacks + 1, callbacks)
    assert after_one is first
    assert driver_metrics() is None


async def test_two_apps_on_one_loop_tell_its_lag_once() -> None:
    with metering(interval_s=0.002) as metered:
        async with observe_event_loop("server"), observe_event_loop("server"):
            state = driver_metrics()
            assert state is not None
            await until(lambda: len(state.lags.recent) > 10)
            [point] = metered.points("gym.event_loop.lag_ms")
            told = len(state.lags.recent)

    assert point.count == told


async def test_each_name_of_a_loop_has_its_lag_and_the_next_app_goes_on_where_one_ends() -> None:
    with metering(interval_s=0.002) as metered:
        first = observe_event_loop("server")
        await first.__aenter__()
        async with observe_event_loop("driver"), observe_event_loop("server"):
            state = driver_metrics()
            assert state is not None
            await until(lambda: len(state.lags.recent) > 5)
            await first.__aexit__(None, None, None)
            ended_at = len(state.lags.recent)
            await until(lambda: len(state.lags.recent) > ended_at + 5)
            points = metered.points("gym.event_loop.lag_ms")
        told = {point.attributes["nemo.gym.event_loop"]: point.count for point in points}

    assert set(told) == {"driver", "server"}
    assert abs(told["driver"] - told["server"]) <= 2


async def test_an_observer_that_starts_again_counts_from_zero(
    caplog: pytest.LogCaptureFixture,
) -> None:
    points: list[Any] = []
    with metering() as metered:
        for _ in range(3):
            async with observe_event_loop("server"):
                counts = request_counts()
                assert counts is not None
                counts.count_response(200)
                points = metered.points("gym.server.responses_total")

    assert [point.value for point in points] == [1]
    assert caplog.records == []


async def test_two_loops_on_two_threads_are_observed_by_name() -> None:
    async def observed(name: str) -> None:
        async with observe_event_loop(name):
            state = driver_metrics()
            assert state is not None
            await until(lambda: len(state.lags.recent) > 4)

    with metering() as metered:
        async with observe_event_loop("main"):
            await asyncio.to_thread(asyncio.run, observed("other"))
            state = driver_metrics()
            points = metered.points("gym.event_loop.lag_ms")

    assert state is not None
    assert {p.attributes["nemo.gym.event_loop"] for p in points} >= {"other"}


async def test_an_instrument_that_raises_stops_neither_the_others_nor_the_sampler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        def record(self, *_args: object) -> None:
            raise RuntimeError("no")

    with metering(interval_s=0.002) as metered:
        async with observe_event_loop("server"):
            state = driver_metrics()
            assert state is not None
            state.lag = Broken()
            state.process = cast("Any", None)
            state.requests.count_response(200)
            gc.collect()
            await until(lambda: len(state.lags.recent) > 2 and not state.gc._pauses)
            collected = metered.collect()

    assert "gym.server.responses_total" in collected
    assert "gym.gc.pause_duration_ms" in collected
    assert "process.cpu.time" not in collected
    assert "could not be recorded" in caplog.text


async def test_a_meter_that_cannot_make_instruments_stops_no_server() -> None:
    with metering() as metered:

        class Refusing:
            def __getattr__(self, name: str) -> Any:
                raise RuntimeError(name)

        observer._INSTRUMENTS.clear()
        state = observer._acquire_process_observer(Refusing())
        state.lag.record(1.0, {})
        state.tasks.set(1)
        observer._release_process_observer()

    assert metered.points("gym.event_loop.lag_ms") == []


async def test_driver_totals_are_exported_only_where_rollouts_were_offered() -> None:
    with metering() as metered:
        async with observe_event_loop("driver"):
            state = driver_metrics()
            assert state is not None
            before = metered.points("gym.driver.rollouts.offered_total")
            state.driver.offered += 3
            after = metered.values("gym.driver.rollouts.offered_total")

    assert before == []
    assert after == {(): 3}


async def test_admission_records_the_wait_and_counts_who_is_inside() -> None:
    with metering() as metered:
        async with observe_event_loop("driver"):
            state = driver_metrics()
            assert state is not None
            admission = MeteredAdmission(asyncio.Semaphore(2), state)
            inside: list[int] = []

            async def rollout() -> None:
                async with admission:
                    inside.append(state.driver.active)
                    await asyncio.sleep(0.001)

            await asyncio.gather(*(count_resident(rollout(), state) for _ in range(6)))
            [wait] = metered.points("gym.driver.admission_duration_ms")

    assert max(inside) == 2
    assert (state.driver.active, state.driver.resident) == (0, 0)
    assert wait.count == 6


async def test_a_rollout_that_fails_or_is_cancelled_is_no_longer_resident() -> None:
    with metering():
        async with observe_event_loop("driver"):
            state = driver_metrics()
            assert state is not None

            async def failing() -> None:
                raise ValueError("bad rollout")

            with pytest.raises(ValueError, match="bad rollout"):
                await count_resident(failing(), state)
            waiting = asyncio.create_task(count_resident(asyncio.sleep(60), state))
            await until(lambda: state.driver.resident == 1)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    assert state.driver.resident == 0
