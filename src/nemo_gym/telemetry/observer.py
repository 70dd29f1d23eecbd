"""Readings of the event loop, the process, requests and the driver: what slows a process down.

A server answers every request on one event loop, so synchronous work on it makes all of them wait
though none looks slow. In come plain integers that others bump on the way; out go OpenTelemetry
instruments that the exporter's own thread reads. Each kind of work runs where it costs least:

- the loop runs one sampler coroutine an interval: lag, and the task count when that is on;
- the exporter's thread reads CPU, memory, threads, descriptors and totals, when it exports;
- the garbage collector's callback stores times and totals; it takes no lock and calls nothing.

While nothing exports, `request_counts()` and `driver_metrics()` are None and neither the
OpenTelemetry SDK nor psutil is imported. No failure here ever reaches a caller.
"""

import asyncio
import gc
import logging
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import random
from time import monotonic, perf_counter
from typing import Any

from nemo_gym.telemetry.admission import MeteredAdmission, count_resident
from nemo_gym.telemetry.counts import DriverCounts, RequestCounts
from nemo_gym.telemetry.exporting import exporting
from nemo_gym.telemetry.instruments import make, make_histogram, swallowing
from nemo_gym.telemetry.lags import Lags
from nemo_gym.telemetry.machine import CoreWaits, core_waits
from nemo_gym.telemetry.names import (
    CPU_MODE_ATTRIBUTE,
    DRIVER_ACTIVE_INSTRUMENT,
    DRIVER_ADMISSION_INSTRUMENT,
    DRIVER_DURATION_BOUNDARIES_MS,
    DRIVER_MATERIALIZE_INSTRUMENT,
    DRIVER_OFFERED_INSTRUMENT,
    DRIVER_RESIDENT_INSTRUMENT,
    DRIVER_WRITE_BYTES_BOUNDARIES,
    DRIVER_WRITE_BYTES_INSTRUMENT,
    DRIVER_WRITE_DURATION_INSTRUMENT,
    EVENT_LOOP_ATTRIBUTE,
    EVENT_LOOP_LAG_BOUNDARIES_MS,
    EVENT_LOOP_LAG_INSTRUMENT,
    EVENT_LOOP_TASKS_INSTRUMENT,
    GC_COLLECTED_INSTRUMENT,
    GC_COLLECTIONS_INSTRUMENT,
    GC_COUNT_INSTRUMENT,
    GC_GENERATION_ATTRIBUTE,
    GC_PAUSE_BOUNDARIES_MS,
    GC_PAUSE_INSTRUMENT,
    GC_UNCOLLECTABLE_INSTRUMENT,
    HTTP_ROUTE_ATTRIBUTE,
    HTTP_STATUS_CODE_ATTRIBUTE,
    OUTBOUND_IN_FLIGHT_INSTRUMENT,
    PROCESS_CPU_TIME_INSTRUMENT,
    PROCESS_MEMORY_USAGE_INSTRUMENT,
    PROCESS_OPEN_FDS_INSTRUMENT,
    PROCESS_THREAD_COUNT_INSTRUMENT,
    REQUEST_PHASE_ATTRIBUTE,
    REQUESTS_CANCELLED_INSTRUMENT,
    REQUESTS_IN_FLIGHT_INSTRUMENT,
    REQUESTS_UNHANDLED_EXCEPTIONS_INSTRUMENT,
    RESPONSES_INSTRUMENT,
    ROLLOUT_COUNT_BOUNDARIES,
    ROLLOUT_INPUT_ITEMS_INSTRUMENT,
    ROLLOUT_OUTPUT_ITEMS_INSTRUMENT,
    ROLLOUT_TOOL_CALLS_INSTRUMENT,
    ROLLOUT_TURNS_INSTRUMENT,
)
from nemo_gym.telemetry.readings import PROCESS_AND_REQUESTS
from nemo_gym.telemetry.sampling import instants, wait_s
from nemo_gym.telemetry.together import TogetherOf, together

__all__ = [
    "CPU_MODE_ATTRIBUTE",
    "DRIVER_ACTIVE_INSTRUMENT",
    "DRIVER_ADMISSION_INSTRUMENT",
    "DRIVER_DURATION_BOUNDARIES_MS",
    "DRIVER_MATERIALIZE_INSTRUMENT",
    "DRIVER_OFFERED_INSTRUMENT",
    "DRIVER_RESIDENT_INSTRUMENT",
    "DRIVER_WRITE_BYTES_BOUNDARIES",
    "DRIVER_WRITE_BYTES_INSTRUMENT",
    "DRIVER_WRITE_DURATION_INSTRUMENT",
    "EVENT_LOOP_ATTRIBUTE",
    "EVENT_LOOP_LAG_BOUNDARIES_MS",
    "EVENT_LOOP_LAG_INSTRUMENT",
    "EVENT_LOOP_TASKS_INSTRUMENT",
    "GC_COLLECTED_INSTRUMENT",
    "GC_COLLECTIONS_INSTRUMENT",
    "GC_COUNT_INSTRUMENT",
    "GC_GENERATION_ATTRIBUTE",
    "GC_PAUSE_BOUNDARIES_MS",
    "GC_PAUSE_INSTRUMENT",
    "GC_UNCOLLECTABLE_INSTRUMENT",
    "HTTP_ROUTE_ATTRIBUTE",
    "HTTP_STATUS_CODE_ATTRIBUTE",
    "OUTBOUND_IN_FLIGHT_INSTRUMENT",
    "PROCESS_CPU_TIME_INSTRUMENT",
    "PROCESS_MEMORY_USAGE_INSTRUMENT",
    "PROCESS_OPEN_FDS_INSTRUMENT",
    "PROCESS_THREAD_COUNT_INSTRUMENT",
    "REQUESTS_CANCELLED_INSTRUMENT",
    "REQUESTS_IN_FLIGHT_INSTRUMENT",
    "REQUESTS_UNHANDLED_EXCEPTIONS_INSTRUMENT",
    "REQUEST_PHASE_ATTRIBUTE",
    "RESPONSES_INSTRUMENT",
    "ROLLOUT_COUNT_BOUNDARIES",
    "ROLLOUT_INPUT_ITEMS_INSTRUMENT",
    "ROLLOUT_OUTPUT_ITEMS_INSTRUMENT",
    "ROLLOUT_TOOL_CALLS_INSTRUMENT",
    "ROLLOUT_TURNS_INSTRUMENT",
    "DriverCounts",
    "MeteredAdmission",
    "RequestCounts",
    "count_resident",
    "driver_metrics",
    "observe_app_event_loop",
    "observe_event_loop",
    "observer_settings",
    "request_counts",
]

logger = logging.getLogger(__name__)

_MAX_BUFFERED_GC_PAUSES = 10000
_MOST_MISSED = 1000
"""Of a loop that was held for longer than so many intervals, the last ones are counted."""
_PROCESS_LOCK = threading.Lock()
_PROCESS_OBSERVER: "_ProcessObserver | None" = None
_ACTIVE_LOOPS = 0
_INSTRUMENTS: "weakref.WeakKeyDictionary[Any, _Instruments]" = weakref.WeakKeyDictionary()


class _GcRecorder:
    """Pauses and totals from `gc.callbacks`, kept without a lock and without OpenTelemetry.

    A lock would deadlock when a collection starts on a thread that holds it, as when
    `drain_pauses` allocates. Python runs one collection at a time, so the callback never races
    itself, and swapping the buffer is safe under the GIL.
    """

    def __init__(self) -> None:
        self._pauses: list[tuple[int, float]] = []
        self._started: dict[int, float] = {}
        self.collections = [0, 0, 0]
        self.collected = [0, 0, 0]
        self.uncollectable = [0, 0, 0]
        self.paused_ms = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        generation = info["generation"]
        if phase == "start":
            self._started[generation] = perf_counter()
            return
        started = self._started.pop(generation, None)
        self.collections[generation] += 1
        self.collected[generation] += info["collected"]
        self.uncollectable[generation] += info["uncollectable"]
        if started is None:
            return
        pause_ms = (perf_counter() - started) * 1000
        self.paused_ms += pause_ms
        if len(self._pauses) < _MAX_BUFFERED_GC_PAUSES:
            self._pauses.append((generation, pause_ms))

    def drain_pauses(self) -> list[tuple[int, float]]:
        """Return `(generation, milliseconds)` of each pause since the last call, oldest first."""
        pauses, self._pauses = self._pauses, []
        return pauses


class _Instruments:
    """The instruments on one meter, made once so that a second start registers none twice."""

    def __init__(self, meter: Any) -> None:
        self.lag = make_histogram(
            meter, EVENT_LOOP_LAG_INSTRUMENT, "ms", EVENT_LOOP_LAG_BOUNDARIES_MS
        )
        self.tasks = make(meter, "gauge", EVENT_LOOP_TASKS_INSTRUMENT, "{task}")
        self.gc_pause = make_histogram(meter, GC_PAUSE_INSTRUMENT, "ms", GC_PAUSE_BOUNDARIES_MS)
        durations = DRIVER_DURATION_BOUNDARIES_MS
        self.admission = make_histogram(meter, DRIVER_ADMISSION_INSTRUMENT, "ms", durations)
        self.materialize = make_histogram(meter, DRIVER_MATERIALIZE_INSTRUMENT, "ms", durations)
        self.write_duration = make_histogram(
            meter, DRIVER_WRITE_DURATION_INSTRUMENT, "ms", durations
        )
        self.write_bytes = make_histogram(
            meter, DRIVER_WRITE_BYTES_INSTRUMENT, "By", DRIVER_WRITE_BYTES_BOUNDARIES
        )
        counts = ROLLOUT_COUNT_BOUNDARIES
        self.input_items = make_histogram(meter, ROLLOUT_INPUT_ITEMS_INSTRUMENT, "{item}", counts)
        self.output_items = make_histogram(meter, ROLLOUT_OUTPUT_ITEMS_INSTRUMENT, "{item}", counts)
        self.turns = make_histogram(meter, ROLLOUT_TURNS_INSTRUMENT, "{turn}", counts)
        self.tool_calls = make_histogram(meter, ROLLOUT_TOOL_CALLS_INSTRUMENT, "{call}", counts)
        self.writes = together(self.write_bytes, self.write_duration)
        self.sizes = together(self.input_items, self.output_items, self.turns, self.tool_calls)
        for kind, name, unit, callback in _observables():
            make(meter, kind, name, unit, callbacks=[callback])


class _ProcessObserver:
    """What one process observes: the GC recorder, the totals, the instruments, its own handle."""

    def __init__(self, meter: Any) -> None:
        import psutil  # noqa: PLC0415 - not installed, and not paid for, while telemetry is off

        instruments = _INSTRUMENTS.get(meter)
        if instruments is None:
            instruments = _INSTRUMENTS[meter] = _Instruments(meter)
        self.process = psutil.Process()
        self.gc = _GcRecorder()
        self.requests = RequestCounts()
        self.driver = DriverCounts()
        self.lags = Lags()
        self.samplers: dict[tuple[int, str | None], asyncio.Task[Any] | None] = {}
        self.draw: Callable[[], float] = random
        """Where in its interval a sample is taken, from 0 to 1."""
        self.core_waits: Callable[[], CoreWaits | None] = core_waits
        """How long this process has been ready to run without a core, and how often it got one."""
        self.began_at = monotonic()
        self.lag = instruments.lag
        self.tasks = instruments.tasks
        self.gc_pause = instruments.gc_pause
        self.admission = instruments.admission
        self.materialize = instruments.materialize
        self.write_duration = instruments.write_duration
        self.write_bytes = instruments.write_bytes
        self.input_items = instruments.input_items
        self.output_items = instruments.output_items
        self.turns = instruments.turns
        self.tool_calls = instruments.tool_calls
        # Bytes and ms of a row; input items, output items, turns and tool calls of a rollout.
        self.writes = TogetherOf(self, ("write_bytes", "write_duration"), instruments.writes)
        sizes = ("input_items", "output_items", "turns", "tool_calls")
        self.sizes = TogetherOf(self, sizes, instruments.sizes)

    def record_gc_pauses(self) -> None:
        """Give the pauses since the last call to their histogram; never from a GC callback."""
        for generation, pause_ms in self.gc.drain_pauses():
            self.gc_pause.record(pause_ms, {GC_GENERATION_ATTRIBUTE: generation})


def request_counts() -> RequestCounts | None:
    """Return the request totals while an observer is running, else None; a plain global read."""
    state = _PROCESS_OBSERVER
    return None if state is None else state.requests


def driver_metrics() -> _ProcessObserver | None:
    """Return this process's observer state, for the driver, while an observer runs, else None."""
    return _PROCESS_OBSERVER


def observer_settings() -> tuple[float, bool] | None:
    """Return the sample interval in seconds and whether to count tasks; None when not exporting."""
    active = exporting()
    return None if active is None else (active.sample_interval_s, active.count_tasks)


def observe_app_event_loop(app: Any, loop_name: str) -> None:
    """Run `observe_event_loop` for the lifetime of a FastAPI app, keeping the lifespan it has."""
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(running_app: Any) -> AsyncIterator[Any]:
        async with observe_event_loop(loop_name), inner(running_app) as state:
            yield state

    app.router.lifespan_context = lifespan


@asynccontextmanager
async def observe_event_loop(loop_name: str) -> AsyncIterator[None]:
    """Sample the running event loop, and observe this process, while the context is open.

    `loop_name` is a bounded label, such as `server`, `head_server` or `driver`. Does nothing
    unless telemetry metrics are exporting.
    """
    state = sampler = None
    try:
        settings = observer_settings()
        if settings is not None:
            state = _acquire_process_observer(_meter())
            sampler = asyncio.create_task(_sample(state, settings[0], loop_name, settings[1]))
    except Exception:  # telemetry never stops a server
        logger.warning("the event loop %s is not observed", loop_name, exc_info=True)
    try:
        yield
    finally:
        if state is not None:
            await _stop(sampler)


async def _stop(sampler: "asyncio.Task[None] | None") -> None:
    """End one loop's sampling; the last loop of the process also hands out what is recorded."""
    try:
        if sampler is not None:
            sampler.cancel()
            await asyncio.gather(sampler, return_exceptions=True)
    finally:
        _release_process_observer()
    if _PROCESS_OBSERVER is None:
        try:
            await asyncio.to_thread(_flush_metrics)
        except RuntimeError:  # no thread can be had any more; the end of the process sends it
            logger.debug("the last readings are not sent at once", exc_info=True)


async def _sample(
    state: _ProcessObserver, interval_seconds: float, loop_name: str, count_tasks: bool
) -> None:
    """Once an interval, record how late this coroutine woke up, and what waits to be recorded."""
    attributes = {EVENT_LOOP_ATTRIBUTE: loop_name}
    loop = asyncio.get_running_loop()
    coreless_s = 0.0
    for due in instants(loop.time(), interval_seconds, state.draw):
        early = due - loop.time()
        if early > 0:
            before = state.core_waits()
            await asyncio.sleep(early)
            coreless_s = wait_s(before, state.core_waits())
        lag_s = max(0.0, loop.time() - due)
        if lag_s > _MOST_MISSED * interval_seconds:
            continue
        lag_ms = lag_s * 1000
        if _speaks_for_its_loop(state):
            state.lags.record(lag_ms, coreless_s * 1000)
        if not _speaks_for_its_loop(state, loop_name):
            continue  # several apps may observe one loop; where one ends, the next goes on
        swallowing(state.lag.record, lag_ms, attributes)
        swallowing(state.record_gc_pauses)
        if count_tasks:
            swallowing(state.tasks.set, len(asyncio.all_tasks()), attributes)


def _speaks_for_its_loop(state: _ProcessObserver, name: str | None = None) -> bool:
    """Say whether this sampler is the first of its loop, or of those that call the loop `name`."""
    me, loop = asyncio.current_task(), id(asyncio.get_running_loop())
    source = state.samplers.get((loop, name))
    if source is None or source.done():
        state.samplers[loop, name] = source = me
    return source is me


def _acquire_process_observer(meter: Any) -> _ProcessObserver:
    """Return the process's observer for one more loop; the first one sets it up."""
    global _PROCESS_OBSERVER, _ACTIVE_LOOPS  # noqa: PLW0603 - one observer a process
    with _PROCESS_LOCK:
        if _PROCESS_OBSERVER is None:
            state = _ProcessObserver(meter)
            gc.callbacks.append(state.gc)
            _PROCESS_OBSERVER = state
        _ACTIVE_LOOPS += 1
        return _PROCESS_OBSERVER


def _release_process_observer() -> None:
    """Give up one loop's share; the last one removes the observer and its GC callback."""
    global _ACTIVE_LOOPS  # noqa: PLW0603 - one observer a process
    with _PROCESS_LOCK:
        # Not below zero: a context opened before a fork may be closed in the child.
        _ACTIVE_LOOPS = max(0, _ACTIVE_LOOPS - 1)
        if _ACTIVE_LOOPS == 0:
            _keep_last_readings()
            _drop_process_observer()


def _drop_process_observer() -> None:
    global _PROCESS_OBSERVER
    state, _PROCESS_OBSERVER = _PROCESS_OBSERVER, None
    if state is not None and state.gc in gc.callbacks:
        gc.callbacks.remove(state.gc)


def _forget_after_fork() -> None:
    """Start a forked child with nothing observed: its loops, threads and exporters are gone."""
    global _PROCESS_LOCK, _ACTIVE_LOOPS  # noqa: PLW0603 - the parent may have held the lock
    _PROCESS_LOCK = threading.Lock()
    _ACTIVE_LOOPS = 0
    _drop_process_observer()


os.register_at_fork(after_in_child=_forget_after_fork)


def _keep_last_readings() -> None:
    # Before they end, and by who ends them: an exporter's thread may be busy, or come too late.
    state, active = _PROCESS_OBSERVER, exporting()
    if state is not None and active is not None:
        swallowing(state.record_gc_pauses)
        swallowing(active.keep)


def _flush_metrics() -> None:
    active = exporting()
    if active is not None:
        swallowing(active.flush)


def _meter() -> Any:
    """Return the meter of this process's exporters, else that of the global provider."""
    active = exporting()
    if active is not None:
        return active.meter
    from opentelemetry.metrics import get_meter  # noqa: PLC0415 - not imported while off

    return get_meter("nemo_gym")


def _observation(value: float, attributes: dict[str, Any] | None = None) -> Any:
    from opentelemetry.metrics import Observation  # noqa: PLC0415 - not imported while off

    return Observation(value, attributes)


def _observe(read: Callable[[_ProcessObserver], list[Any]]) -> Callable[[Any], list[Any]]:
    """Wrap a reading of the running observer as the callback of an observable instrument.

    It reports nothing while no observer runs, and one measurement that fails stops no other.
    """

    def callback(_options: Any) -> list[Any]:
        state = _PROCESS_OBSERVER
        if state is None:
            return []
        try:
            return read(state)
        except Exception:  # telemetry never stops a server
            logger.warning("a measurement is not available", exc_info=True)
            return []

    return callback


def _by_generation(
    values: Callable[[_ProcessObserver], list[int]],
) -> Callable[[Any], list[Any]]:
    return _observe(
        lambda state: [
            _observation(value, {GC_GENERATION_ATTRIBUTE: generation})
            for generation, value in enumerate(values(state))
        ]
    )


def _driver_total(read: Callable[[DriverCounts], int]) -> Callable[[Any], list[Any]]:
    """Report a total only where rollouts were offered: servers export no constant-zero series."""
    return _observe(
        lambda state: [_observation(read(state.driver))] if state.driver.offered else []
    )


def _cpu_times(state: _ProcessObserver) -> list[Any]:
    times = state.process.cpu_times()
    return [
        _observation(times.user, {CPU_MODE_ATTRIBUTE: "user"}),
        _observation(times.system, {CPU_MODE_ATTRIBUTE: "system"}),
    ]


def _observables() -> list[tuple[str, str, str, Callable[[Any], list[Any]]]]:
    """Kind, name, unit and callback of each instrument that the exporter's thread reads."""
    counter, gauge, level = "observable_counter", "observable_gauge", "observable_up_down_counter"
    each = _by_generation
    return [
        (counter, GC_COLLECTIONS_INSTRUMENT, "{collection}", each(lambda s: s.gc.collections)),
        (counter, GC_COLLECTED_INSTRUMENT, "{object}", each(lambda s: s.gc.collected)),
        (counter, GC_UNCOLLECTABLE_INSTRUMENT, "{object}", each(lambda s: s.gc.uncollectable)),
        (gauge, GC_COUNT_INSTRUMENT, "{allocation}", each(lambda _: list(gc.get_count()))),
        (counter, PROCESS_CPU_TIME_INSTRUMENT, "s", _observe(_cpu_times)),
        (counter, DRIVER_OFFERED_INSTRUMENT, "{rollout}", _driver_total(lambda d: d.offered)),
        (level, DRIVER_RESIDENT_INSTRUMENT, "{rollout}", _driver_total(lambda d: d.resident)),
        (level, DRIVER_ACTIVE_INSTRUMENT, "{rollout}", _driver_total(lambda d: d.active)),
        *((kind, name, unit, _pairs(read)) for kind, name, unit, read in PROCESS_AND_REQUESTS),
    ]


def _pairs(
    read: Callable[[_ProcessObserver], list[tuple[float, dict[str, Any]]]],
) -> Callable[[Any], list[Any]]:
    return _observe(lambda state: [_observation(*pair) for pair in read(state)])
