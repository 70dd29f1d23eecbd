"""Totals that others bump on their way with plain integers, and the exporter's thread reads.

Each update is one `+=` on an attribute with no call in between, which CPython with the GIL never
interrupts with another thread, so no update is lost. No lock, no clock, no OpenTelemetry.
"""

from collections import defaultdict

from nemo_gym.telemetry.names import PHASE_AFTER_START, PHASE_BEFORE_START

__all__ = ["DriverCounts", "RequestCounts"]

_MAX_CANCELLED_SERIES = 1000


class RequestCounts:
    """Requests of this process's servers, and calls that left it over HTTP.

    The serving loop updates the inbound totals; `outbound_in_flight` may change on other loops too.
    """

    def __init__(self) -> None:
        self.in_flight = 0
        self.outbound_in_flight = 0
        self.unhandled_exceptions = 0
        self.cancelled = 0
        self.responses: dict[int, int] = defaultdict(int)
        self.cancelled_by_route_and_phase: dict[tuple[str, str], int] = {}

    def count_response(self, status: int) -> None:
        """Count one response by its HTTP status; only the serving loop does, as by this."""
        self.responses[status] += 1

    def count_cancellation(self, route: str, response_started: bool) -> None:
        """Count one disconnect; `route` is a registered template or the unmatched sentinel."""
        self.cancelled += 1
        series = self.cancelled_by_route_and_phase
        key = (route, PHASE_AFTER_START if response_started else PHASE_BEFORE_START)
        # A caller that passes raw paths must not grow a series for each of them.
        if key not in series and len(series) >= _MAX_CANCELLED_SERIES:
            key = ("other", key[1])
        series[key] = series.get(key, 0) + 1


class DriverCounts:
    """Totals of rollouts, updated by the driver with plain integer arithmetic."""

    def __init__(self) -> None:
        self.offered = 0
        """Rollouts handed to dispatch."""
        self.resident = 0
        """Rollout tasks that exist and have not finished, waiting for admission or running."""
        self.active = 0
        """Rollouts admitted past the concurrency limit and running."""
