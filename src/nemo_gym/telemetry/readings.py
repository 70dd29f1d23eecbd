"""Readings of the process and its requests: an observer's state in, values with attributes out.

The exporter's thread calls them, so whatever a serving loop may change meanwhile is copied first.
"""

from collections.abc import Callable
from typing import Any

from nemo_gym.telemetry.names import (
    HTTP_ROUTE_ATTRIBUTE,
    HTTP_STATUS_CODE_ATTRIBUTE,
    OUTBOUND_IN_FLIGHT_INSTRUMENT,
    PROCESS_MEMORY_USAGE_INSTRUMENT,
    PROCESS_OPEN_FDS_INSTRUMENT,
    PROCESS_THREAD_COUNT_INSTRUMENT,
    REQUEST_PHASE_ATTRIBUTE,
    REQUESTS_CANCELLED_INSTRUMENT,
    REQUESTS_IN_FLIGHT_INSTRUMENT,
    REQUESTS_UNHANDLED_EXCEPTIONS_INSTRUMENT,
    RESPONSES_INSTRUMENT,
)

__all__ = ["PROCESS_AND_REQUESTS", "Reading"]

Reading = tuple[float, dict[str, Any]]
"""One value and its attributes."""


def _responses(state: Any) -> list[Reading]:
    counts = state.requests.responses.copy()
    return [(count, {HTTP_STATUS_CODE_ATTRIBUTE: status}) for status, count in counts.items()]


def _cancellations(state: Any) -> list[Reading]:
    counts = state.requests.cancelled_by_route_and_phase.copy()
    return [
        (count, {HTTP_ROUTE_ATTRIBUTE: route, REQUEST_PHASE_ATTRIBUTE: phase})
        for (route, phase), count in counts.items()
    ]


def _one(read: Callable[[Any], float]) -> Callable[[Any], list[Reading]]:
    return lambda state: [(read(state), {})]


_COUNTER = "observable_counter"
_LEVEL = "observable_up_down_counter"

PROCESS_AND_REQUESTS: tuple[tuple[str, str, str, Callable[[Any], list[Reading]]], ...] = (
    (_LEVEL, PROCESS_MEMORY_USAGE_INSTRUMENT, "By", _one(lambda s: s.process.memory_info().rss)),
    (_LEVEL, PROCESS_THREAD_COUNT_INSTRUMENT, "{thread}", _one(lambda s: s.process.num_threads())),
    (
        _LEVEL,
        PROCESS_OPEN_FDS_INSTRUMENT,
        "{file_descriptor}",
        _one(lambda s: s.process.num_fds()),
    ),
    (_LEVEL, REQUESTS_IN_FLIGHT_INSTRUMENT, "{request}", _one(lambda s: s.requests.in_flight)),
    (
        _LEVEL,
        OUTBOUND_IN_FLIGHT_INSTRUMENT,
        "{request}",
        _one(lambda s: s.requests.outbound_in_flight),
    ),
    (
        _COUNTER,
        REQUESTS_UNHANDLED_EXCEPTIONS_INSTRUMENT,
        "{exception}",
        _one(lambda s: s.requests.unhandled_exceptions),
    ),
    (_COUNTER, REQUESTS_CANCELLED_INSTRUMENT, "{request}", _cancellations),
    (_COUNTER, RESPONSES_INSTRUMENT, "{response}", _responses),
)
"""Kind of instrument, name, unit, and the reading of a process observer's state."""
