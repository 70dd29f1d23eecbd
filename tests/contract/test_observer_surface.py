"""The documented names of `nemo_gym.telemetry.observer`: values, signatures, defaults."""

import inspect
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from nemo_gym.telemetry import observer

VALUES: dict[str, object] = {
    "CPU_MODE_ATTRIBUTE": "cpu.mode",
    "DRIVER_ACTIVE_INSTRUMENT": "gym.driver.rollouts.active",
    "DRIVER_ADMISSION_INSTRUMENT": "gym.driver.admission_duration_ms",
    "DRIVER_DURATION_BOUNDARIES_MS": (
        0.1, 1, 10, 100, 500, 1000, 5000, 10000, 30000, 60000, 300000, 1800000,
    ),
    "DRIVER_MATERIALIZE_INSTRUMENT": "gym.driver.materialize_duration_ms",
    "DRIVER_OFFERED_INSTRUMENT": "gym.driver.rollouts.offered_total",
    "DRIVER_RESIDENT_INSTRUMENT": "gym.driver.rollouts.resident",
    "DRIVER_WRITE_BYTES_BOUNDARIES": (1000, 10000, 100000, 1000000, 10000000, 100000000),
    "DRIVER_WRITE_BYTES_INSTRUMENT": "gym.driver.output_write_bytes",
    "DRIVER_WRITE_DURATION_INSTRUMENT": "gym.driver.output_write_duration_ms",
    "EVENT_LOOP_ATTRIBUTE": "nemo.gym.event_loop",
    "EVENT_LOOP_LAG_BOUNDARIES_MS": (
        0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000,
    ),
    "EVENT_LOOP_LAG_INSTRUMENT": "gym.event_loop.lag_ms",
    "EVENT_LOOP_TASKS_INSTRUMENT": "gym.event_loop.tasks",
    "GC_COLLECTED_INSTRUMENT": "gym.gc.collected_total",
    "GC_COLLECTIONS_INSTRUMENT": "gym.gc.collections_total",
    "GC_COUNT_INSTRUMENT": "gym.gc.count",
    "GC_GENERATION_ATTRIBUTE": "nemo.gym.gc.generation",
    "GC_PAUSE_BOUNDARIES_MS": (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000),
    "GC_PAUSE_INSTRUMENT": "gym.gc.pause_duration_ms",
    "GC_UNCOLLECTABLE_INSTRUMENT": "gym.gc.uncollectable_total",
    "HTTP_ROUTE_ATTRIBUTE": "http.route",
    "HTTP_STATUS_CODE_ATTRIBUTE": "http.response.status_code",
    "OUTBOUND_IN_FLIGHT_INSTRUMENT": "gym.http.client.requests.in_flight",
    "PROCESS_CPU_TIME_INSTRUMENT": "process.cpu.time",
    "PROCESS_MEMORY_USAGE_INSTRUMENT": "process.memory.usage",
    "PROCESS_OPEN_FDS_INSTRUMENT": "process.open_file_descriptor.count",
    "PROCESS_THREAD_COUNT_INSTRUMENT": "process.thread.count",
    "REQUESTS_CANCELLED_INSTRUMENT": "gym.server.requests.cancelled_total",
    "REQUESTS_IN_FLIGHT_INSTRUMENT": "gym.server.requests.in_flight",
    "REQUESTS_UNHANDLED_EXCEPTIONS_INSTRUMENT": "gym.server.requests.unhandled_exceptions_total",
    "REQUEST_PHASE_ATTRIBUTE": "nemo.gym.request.phase",
    "RESPONSES_INSTRUMENT": "gym.server.responses_total",
    "ROLLOUT_COUNT_BOUNDARIES": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096),
    "ROLLOUT_INPUT_ITEMS_INSTRUMENT": "gym.driver.rollout.input_items",
    "ROLLOUT_OUTPUT_ITEMS_INSTRUMENT": "gym.driver.rollout.output_items",
    "ROLLOUT_TOOL_CALLS_INSTRUMENT": "gym.driver.rollout.tool_calls",
    "ROLLOUT_TURNS_INSTRUMENT": "gym.driver.rollout.turns",
    "_ACTIVE_LOOPS": 0,
    "_MAX_BUFFERED_GC_PAUSES": 10000,
    "_PROCESS_OBSERVER": None,
}  # fmt: skip

PARAMETERS: dict[str, list[str]] = {
    "DriverCounts": [],
    "MeteredAdmission": ["semaphore", "observer"],
    "MeteredAdmission.__aenter__": ["self"],
    "MeteredAdmission.__aexit__": ["self", "*exc_info"],
    "RequestCounts": [],
    "RequestCounts.count_cancellation": ["self", "route", "response_started"],
    "RequestCounts.count_response": ["self", "status"],
    "_GcRecorder": [],
    "_GcRecorder.__call__": ["self", "phase", "info"],
    "_GcRecorder.drain_pauses": ["self"],
    "_Instruments": ["meter"],
    "_ProcessObserver": ["meter"],
    "_ProcessObserver.record_gc_pauses": ["self"],
    "_acquire_process_observer": ["meter"],
    "_by_generation": ["values"],
    "_cpu_times": ["state"],
    "_driver_total": ["read"],
    "_flush_metrics": [],
    "_observation": ["value", "attributes=None"],
    "_observe": ["read"],
    "_release_process_observer": [],
    "_sample": ["state", "interval_seconds", "loop_name", "count_tasks"],
    "count_resident": ["awaitable", "observer"],
    "driver_metrics": [],
    "observe_app_event_loop": ["app", "loop_name"],
    "observe_event_loop": ["loop_name"],
    "observer_settings": [],
    "request_counts": [],
}


def resolve(path: str) -> Any:
    found: Any = observer
    for part in path.split("."):
        found = getattr(found, part)
    return found


def parameters(function: Callable[..., Any]) -> list[str]:
    shown = []
    for parameter in inspect.signature(function).parameters.values():
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        default = "" if parameter.default is parameter.empty else f"={parameter.default}"
        shown.append(f"{star}{parameter.name}{default}")
    return shown


@pytest.mark.parametrize("name", VALUES)
def test_a_constant_has_its_documented_value(name: str) -> None:
    assert getattr(observer, name) == VALUES[name]


@pytest.mark.parametrize("path", PARAMETERS)
def test_a_function_or_class_takes_its_documented_parameters(path: str) -> None:
    assert parameters(resolve(path)) == PARAMETERS[path]


def test_boundaries_are_tuples() -> None:
    names = [name for name in VALUES if "BOUNDARIES" in name]

    assert all(isinstance(getattr(observer, name), tuple) for name in names)


def test_what_is_awaited_is_a_coroutine_function() -> None:
    for path in ("_sample", "count_resident", "MeteredAdmission.__aenter__"):
        assert inspect.iscoroutinefunction(resolve(path))


def test_a_new_request_count_is_empty() -> None:
    counts = observer.RequestCounts()

    assert (counts.cancelled, counts.in_flight, counts.outbound_in_flight) == (0, 0, 0)
    assert counts.unhandled_exceptions == 0
    assert counts.responses == {}
    assert counts.cancelled_by_route_and_phase == {}


def test_a_new_driver_count_is_zero() -> None:
    counts = observer.DriverCounts()

    assert (counts.active, counts.offered, counts.resident) == (0, 0, 0)


def test_a_new_gc_recorder_is_empty() -> None:
    recorder = observer._GcRecorder()

    assert (recorder._pauses, recorder._started) == ([], {})
    assert recorder.collected == recorder.collections == recorder.uncollectable == [0, 0, 0]


def test_the_process_state_has_its_documented_types() -> None:
    assert isinstance(observer._INSTRUMENTS, weakref.WeakKeyDictionary)
    assert isinstance(observer._PROCESS_LOCK, type(threading.Lock()))
    assert observer.logger is logging.getLogger("nemo_gym.telemetry.observer")


def test_the_public_names_are_the_documented_ones() -> None:
    documented = {name.partition(".")[0] for name in (*VALUES, *PARAMETERS)}

    assert set(observer.__all__) == {name for name in documented if not name.startswith("_")}
