"""A meter with a reader in memory, and this process exporting to it for the length of a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from nemo_gym.telemetry.exporting import Exporting, set_exporting

__all__ = ["Metered", "NotingMeter", "metering"]


@dataclass(slots=True)
class Metered:
    """What instruments on a meter hold."""

    reader: InMemoryMetricReader
    meter: Any
    exporting: Exporting

    def points(self, name: str) -> list[Any]:
        """Return the data points of the instrument `name` as of now."""
        return self.collect().get(name, [])

    def values(self, name: str) -> dict[Any, Any]:
        """Return value by the attributes' values, for a counter or a gauge."""
        return {tuple(point.attributes.values()): point.value for point in self.points(name)}

    def collect(self) -> dict[str, list[Any]]:
        """Return the data points of every instrument as of now."""
        data = self.reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: list(metric.data.data_points)
            for group in data.resource_metrics
            for scope in group.scope_metrics
            for metric in scope.metrics
        }


class NotingMeter:
    """Notes name, unit and kind of every instrument that is made on it."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str, bool]] = []

    def __getattr__(self, create: str) -> Any:
        def note(name: str, unit: str = "", **_options: Any) -> None:
            self.made.append((name, unit, create.endswith("_counter") and "up_down" not in create))

        return note


@contextmanager
def metering(*, interval_s: float = 0.005, count_tasks: bool = False) -> Iterator[Metered]:
    """Export to memory: `observe_event_loop` observes while this is open."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    meter = provider.get_meter("test")
    exporting = Exporting(meter, interval_s, count_tasks, flush=lambda: None)
    set_exporting(exporting)
    try:
        yield Metered(reader, meter, exporting)
    finally:
        set_exporting(None)
        provider.shutdown()
