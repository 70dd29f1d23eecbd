"""Histograms and counters made of plain numbers, by attribute values, bounded in how many.

Readings come in on the hot path; the exporter's thread takes copies. An update is one `+=` with no
call in between, so none is lost to another thread under the GIL. No lock, no OpenTelemetry.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "OTHER",
    "CounterSeries",
    "Described",
    "HistogramReading",
    "HistogramSeries",
    "PlainCounter",
    "PlainHistogram",
]

OTHER = "other"
"""Attribute value of everything beyond the limit of a series."""

Values = tuple[str | None, ...]
"""Attribute values in the order of a series' keys; None leaves that attribute out."""


@dataclass(frozen=True, slots=True)
class HistogramReading:
    """What a histogram held when it was read."""

    bounds: tuple[float, ...]
    """Upper bounds of the buckets, inclusive; one more bucket lies above the last."""
    counts: tuple[int, ...]
    total: float
    """Sum of all readings."""

    @property
    def count(self) -> int:
        """How many readings there were."""
        return sum(self.counts)

    def quantile(self, q: float) -> float | None:
        """Return the value below which the share `q` of readings lies; None without readings.

        Linear within a bucket. Readings above the last bound count as that bound.
        """
        rank = q * self.count
        below = 0
        for index, count in enumerate(self.counts):
            if count and below + count >= rank:
                if index == len(self.bounds):
                    return self.bounds[-1]
                low = self.bounds[index - 1] if index else 0.0
                return low + (self.bounds[index] - low) * max(0.0, rank - below) / count
            below += count
        return None

    def trimmed(self) -> "HistogramReading":
        """Return the same without the empty buckets at both ends: less to send."""
        held = [index for index, count in enumerate(self.counts) if count]
        if not held:
            return HistogramReading((), (0,), self.total)
        first, last = max(0, held[0] - 1), held[-1] + 1
        counts = self.counts[first:last]
        above = () if last == len(self.counts) else (0,)
        return HistogramReading(self.bounds[first:last], (*counts, *above), self.total)

    def plus(self, other: "HistogramReading") -> "HistogramReading":
        """Return both together; both are of the same bounds, trimmed or not."""
        return self._with(other, 1)

    def since(self, earlier: "HistogramReading | None") -> "HistogramReading":
        """Return only what was added after `earlier`, of the same bounds, trimmed or not."""
        return self if earlier is None else self._with(earlier, -1)

    def _with(self, other: "HistogramReading", sign: int) -> "HistogramReading":
        held = dict(zip(self.bounds, self.counts, strict=False))
        for bound, count in zip(other.bounds, other.counts, strict=False):
            held[bound] = held.get(bound, 0) + sign * count
        bounds = tuple(sorted(held))
        above = self.counts[-1] + sign * other.counts[-1]
        counts = (*(held[bound] for bound in bounds), above)
        return HistogramReading(bounds, counts, self.total + sign * other.total)


class PlainHistogram:
    """Counts per bucket, and a sum."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def record(self, reading: float) -> None:
        """Add one reading."""
        index = bisect_left(self._bounds, reading)
        self._counts[index] += 1
        self._total += reading

    def read(self) -> HistogramReading:
        """Return a copy of what is held now."""
        return HistogramReading(self._bounds, tuple(self._counts), self._total)


@dataclass(frozen=True, slots=True)
class Described:
    """What an instrument is called and how its series differ."""

    name: str
    """Name of the instrument."""
    unit: str
    keys: tuple[str, ...]
    """Attribute names, in the order in which values are given."""
    limit: int = 200
    """Most series of distinct values; what comes after is counted under `other`."""

    def attributes(self, values: Values) -> dict[str, str]:
        """Return the attributes of one series."""
        pairs = zip(self.keys, values, strict=True)
        return {key: value for key, value in pairs if value is not None}


class HistogramSeries:
    """One histogram instrument: a plain histogram per distinct attribute values."""

    def __init__(
        self, name: str, unit: str, bounds: Sequence[float], keys: tuple[str, ...] = ()
    ) -> None:
        self.described = Described(name, unit, keys)
        self._bounds = tuple(bounds)
        self._series: dict[Values, PlainHistogram] = {}

    def record(self, reading: float, *values: str | None) -> None:
        """Add one reading under these attribute values."""
        self.of(*values).record(reading)

    def of(self, *values: str | None) -> PlainHistogram:
        """Return what holds the readings under these attribute values, to be kept and recorded on.

        It is admitted by this, and counts in the limit, read or not.
        """
        found = self._series.get(values)
        return self._admit(values) if found is None else found

    def read(self) -> list[tuple[dict[str, str], HistogramReading]]:
        """Return attributes and contents of every series, in a stable order."""
        series = self._series.copy()
        return [(self.described.attributes(v), h.read()) for v, h in series.items()]

    def _admit(self, values: Values) -> PlainHistogram:
        if len(self._series) >= self.described.limit:
            values = (OTHER,) * len(values)
        return self._series.setdefault(values, PlainHistogram(self._bounds))


class PlainCounter:
    """A number that grows: `count += n` on it."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class CounterSeries:
    """One counter instrument: a plain counter per distinct attribute values."""

    def __init__(self, name: str, unit: str, keys: tuple[str, ...] = ()) -> None:
        self.described = Described(name, unit, keys)
        self._series: dict[Values, PlainCounter] = {}

    def add(self, count: int, *values: str | None) -> None:
        """Add `count` under these attribute values."""
        self.of(*values).count += count

    def of(self, *values: str | None) -> PlainCounter:
        """Return what counts under these attribute values, to be kept and counted on."""
        found = self._series.get(values)
        if found is None:
            if len(self._series) >= self.described.limit:
                values = (OTHER,) * len(values)
            found = self._series.setdefault(values, PlainCounter())
        return found

    def read(self) -> list[tuple[dict[str, str], int]]:
        """Return attributes and count of every series, in a stable order."""
        series = self._series.copy()
        return [(self.described.attributes(values), held.count) for values, held in series.items()]
