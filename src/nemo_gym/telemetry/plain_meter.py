"""A meter whose histograms are plain numbers; everything else goes to the meter behind it.

Recording on an SDK histogram costs 6 µs a reader, on one of these half a microsecond, and a server
under load records a collection of the garbage collector several times a request. The reader takes
them from `histograms` when it collects (`sdk.CollectingReader`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nemo_gym.telemetry.series import OTHER, Described, HistogramReading, PlainHistogram

__all__ = ["AttributedHistogram", "PlainMeter"]


class AttributedHistogram:
    """A histogram instrument: a plain histogram per distinct attributes, bounded in how many."""

    def __init__(self, name: str, unit: str, bounds: Sequence[float]) -> None:
        self.described = Described(name, unit, ())
        self._bounds = tuple(bounds)
        self._series: dict[tuple[tuple[str, Any], ...], PlainHistogram] = {}
        self._gather: list[Callable[[], None]] = []

    def record(self, reading: float, attributes: Mapping[str, Any] | None = None) -> None:
        """Add one reading."""
        key = tuple(attributes.items()) if attributes else ()
        found = self._series.get(key)
        if found is None:
            if len(self._series) >= self.described.limit:
                key = tuple((name, OTHER) for name, _ in key)
            found = self._series.setdefault(key, PlainHistogram(self._bounds))
        found.record(reading)

    def gather_by(self, gather: Callable[[], None]) -> None:
        """Have `gather` bring in what was recorded elsewhere, before each read."""
        self._gather.append(gather)

    def record_all(self, readings: Sequence[float]) -> None:
        """Add several readings without attributes."""
        self._series.setdefault((), PlainHistogram(self._bounds)).record_all(readings)

    def read(self) -> list[tuple[dict[str, Any], HistogramReading]]:
        """Return attributes and contents of every series, in a stable order."""
        for gather in self._gather:
            gather()
        return [(dict(key), held.read()) for key, held in self._series.copy().items()]


class PlainMeter:
    """Makes plain histograms, and hands every other instrument to the meter behind it."""

    def __init__(self, meter: Any) -> None:
        self._meter = meter
        self.histograms: list[AttributedHistogram] = []

    def create_histogram(
        self,
        name: str,
        unit: str = "",
        description: str = "",
        *,
        explicit_bucket_boundaries_advisory: Sequence[float],
    ) -> AttributedHistogram:
        """Return a histogram with these upper bounds."""
        made = AttributedHistogram(name, unit, explicit_bucket_boundaries_advisory)
        self.histograms.append(made)
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._meter, name)
