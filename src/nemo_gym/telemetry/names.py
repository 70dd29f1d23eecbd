"""Names, units and bucket boundaries of every instrument and attribute: constants only.

`nemo_gym.telemetry.observer` gives the ones of the event loop, the process, requests and the
driver under their documented import path.
"""

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
    "OWN_ROUTES",
    "PHASE_AFTER_START",
    "PHASE_BEFORE_START",
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
    "UNMATCHED_ROUTE",
]

# --- the event loop and the garbage collector
EVENT_LOOP_LAG_INSTRUMENT = "gym.event_loop.lag_ms"
EVENT_LOOP_TASKS_INSTRUMENT = "gym.event_loop.tasks"
EVENT_LOOP_ATTRIBUTE = "nemo.gym.event_loop"
EVENT_LOOP_LAG_BOUNDARIES_MS: tuple[float, ...] = (
    0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000,
)  # fmt: skip
GC_PAUSE_INSTRUMENT = "gym.gc.pause_duration_ms"
GC_COLLECTIONS_INSTRUMENT = "gym.gc.collections_total"
GC_COLLECTED_INSTRUMENT = "gym.gc.collected_total"
GC_UNCOLLECTABLE_INSTRUMENT = "gym.gc.uncollectable_total"
GC_COUNT_INSTRUMENT = "gym.gc.count"
GC_GENERATION_ATTRIBUTE = "nemo.gym.gc.generation"
GC_PAUSE_BOUNDARIES_MS: tuple[float, ...] = (
    0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000,
)  # fmt: skip

# --- the process: names, units and attributes of the OpenTelemetry semantic conventions
PROCESS_CPU_TIME_INSTRUMENT = "process.cpu.time"
PROCESS_MEMORY_USAGE_INSTRUMENT = "process.memory.usage"
PROCESS_THREAD_COUNT_INSTRUMENT = "process.thread.count"
PROCESS_OPEN_FDS_INSTRUMENT = "process.open_file_descriptor.count"
CPU_MODE_ATTRIBUTE = "cpu.mode"

# --- requests of a server, and calls that leave it over HTTP
REQUESTS_IN_FLIGHT_INSTRUMENT = "gym.server.requests.in_flight"
REQUESTS_UNHANDLED_EXCEPTIONS_INSTRUMENT = "gym.server.requests.unhandled_exceptions_total"
REQUESTS_CANCELLED_INSTRUMENT = "gym.server.requests.cancelled_total"
RESPONSES_INSTRUMENT = "gym.server.responses_total"
OUTBOUND_IN_FLIGHT_INSTRUMENT = "gym.http.client.requests.in_flight"
HTTP_STATUS_CODE_ATTRIBUTE = "http.response.status_code"
HTTP_ROUTE_ATTRIBUTE = "http.route"
REQUEST_PHASE_ATTRIBUTE = "nemo.gym.request.phase"
PHASE_BEFORE_START = "before_response_start"
PHASE_AFTER_START = "after_response_start"
UNMATCHED_ROUTE = "unmatched"
"""Route of a request that no registered template matched."""

OWN_ROUTES = frozenset(
    (
        b"/run",
        b"/seed_session",
        b"/verify",
        b"/aggregate_metrics",
        b"/health",
        b"/v1/responses",
        b"/v1/chat/completions",
        b"/v1/messages",
        b"/v1/messages/count_tokens",
        b"/v1/models",
    )
)
"""Paths of the product's own, which are route templates too; without the prefix of a rollout."""

# --- the rollout driver
DRIVER_OFFERED_INSTRUMENT = "gym.driver.rollouts.offered_total"
DRIVER_RESIDENT_INSTRUMENT = "gym.driver.rollouts.resident"
DRIVER_ACTIVE_INSTRUMENT = "gym.driver.rollouts.active"
DRIVER_ADMISSION_INSTRUMENT = "gym.driver.admission_duration_ms"
DRIVER_MATERIALIZE_INSTRUMENT = "gym.driver.materialize_duration_ms"
DRIVER_WRITE_DURATION_INSTRUMENT = "gym.driver.output_write_duration_ms"
DRIVER_WRITE_BYTES_INSTRUMENT = "gym.driver.output_write_bytes"
DRIVER_DURATION_BOUNDARIES_MS: tuple[float, ...] = (
    0.1, 1, 10, 100, 500, 1000, 5000, 10000, 30000, 60000, 300000, 1800000,
)  # fmt: skip
DRIVER_WRITE_BYTES_BOUNDARIES: tuple[float, ...] = (
    1000, 10000, 100000, 1000000, 10000000, 100000000,
)  # fmt: skip
ROLLOUT_INPUT_ITEMS_INSTRUMENT = "gym.driver.rollout.input_items"
ROLLOUT_OUTPUT_ITEMS_INSTRUMENT = "gym.driver.rollout.output_items"
ROLLOUT_TURNS_INSTRUMENT = "gym.driver.rollout.turns"
ROLLOUT_TOOL_CALLS_INSTRUMENT = "gym.driver.rollout.tool_calls"
ROLLOUT_COUNT_BOUNDARIES: tuple[float, ...] = (
    1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096,
)  # fmt: skip
