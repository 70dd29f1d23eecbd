"""The recorded counters and the levels of the live counts, as instruments on a meter.

Histograms are not here: the reader takes those as they are (`sdk.CollectingReader`).
"""

from collections.abc import Callable
from typing import Any

from opentelemetry.metrics import Observation

from nemo_gym.telemetry.instruments import make
from nemo_gym.telemetry.live import LiveCounts, live_counts
from nemo_gym.telemetry.observer import driver_metrics
from nemo_gym.telemetry.recorded import Recorded
from nemo_gym.telemetry.series import CounterSeries

__all__ = ["LEVELS", "SERVER_IN_FLIGHT", "register"]


def _queued(live: LiveCounts) -> int:
    return live.rows_submitted - live.rows_durable - live.rows_failed


def _waiting(live: LiveCounts) -> int:
    observed = driver_metrics()
    driver = live.rollouts if observed is None else observed.driver
    return driver.resident - driver.active


LEVELS: dict[str, tuple[str, Callable[[LiveCounts], int]]] = {
    "gym.model.calls.in_flight": ("{call}", lambda live: live.model_calls_in_flight),
    "gym.capture.queue_depth": ("{row}", _queued),
    "gym.driver.admission.queued": ("{rollout}", _waiting),
}
"""Name of an up-down counter, its unit, and its reading of the live counts."""

SERVER_IN_FLIGHT = "gym.servers.in_flight"
"""Requests under way by server: one process may host several."""


def register(meter: Any, recorded: Recorded) -> None:
    """Make an instrument on `meter` for every counter and level."""
    for series in recorded.counters():
        described = series.described
        make(
            meter,
            "observable_counter",
            described.name,
            described.unit,
            callbacks=[_counter(series)],
        )
    for name, (unit, read) in LEVELS.items():
        make(meter, "observable_up_down_counter", name, unit, callbacks=[_level(read)])
    make(
        meter,
        "observable_up_down_counter",
        SERVER_IN_FLIGHT,
        "{request}",
        callbacks=[_in_flight_by_server],
    )


def _counter(series: CounterSeries) -> Callable[[Any], list[Observation]]:
    return lambda _options: [Observation(count, labels) for labels, count in series.read()]


def _level(read: Callable[[LiveCounts], int]) -> Callable[[Any], list[Observation]]:
    return lambda _options: [Observation(read(live_counts()))]


def _in_flight_by_server(_options: Any) -> list[Observation]:
    servers = live_counts().servers.copy()
    return [Observation(s.in_flight, {"nemo.gym.server": name}) for name, s in servers.items()]
