"""Histograms and counters made of plain numbers, by attribute values, bounded in how many.

Readings come in on the hot path; the exporter's thread takes copies. A counter's update is one `+=`
with no call in between, so none is lost to another thread under the GIL. A reading is appended to a
list and counted later, together with others. Who records never waits. No OpenTelemetry.
"""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from nemo_gym.telemetry.instruments import swallowing

__all__ = [
    "MOST_GATHERED",
    "MOST_SENT",
    "OTHER",
    "CounterSeries",
    "Described",
    "Gathered",
    "Gathering",
    "HistogramReading",
    "HistogramSeries",
    "PlainCounter",
    "PlainHistogram",
]

OTHER = "other"
"""Attribute value of what is beyond the limit of a series."""
MOST_GATHERED = 256
"""So many readings are counted together; what reads them does not wait for as many."""

MOST_SENT = (1 << 63) - 1
"""The largest whole number of OTLP; one larger would keep all others from being sent."""

T = TypeVar("T")

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


class Gathering(Generic[T]):
    """Takes readings one by one and counts them many at a time, where code and data are warm.

    Nothing is lost between threads: a list's `append`, its copy and the deletion of its beginning
    are one step each under the GIL, and only one thread counts at a time.
    """

    __slots__ = ("_counting", "_fresh")

    def __init__(self) -> None:
        self._fresh: list[T] = []
        self._counting = threading.Lock()

    def record(self, reading: T) -> None:
        """Take one reading."""
        fresh = self._fresh
        fresh.append(reading)
        if len(fresh) >= MOST_GATHERED:
            self._relieve()

    def record_all(self, readings: Iterable[T]) -> None:
        """Take several readings."""
        self._fresh.extend(readings)
        if len(self._fresh) >= MOST_GATHERED:
            self._relieve()

    def gather(self) -> None:
        """Count all that was recorded before this."""
        with self._counting:
            self._count_fresh()

    def _relieve(self) -> None:
        # Whoever counts now leaves little; waiting for it could hold a loop, or, from a finalizer
        # that the garbage collector runs inside `gather`, be for ever.
        if self._counting.acquire(blocking=False):
            try:
                self._count_fresh()
            finally:
                self._counting.release()

    def _count_fresh(self) -> None:
        readings = self._fresh[:]
        del self._fresh[: len(readings)]
        if readings:
            # Whoever records is in the middle of a call, and no reading is worth failing it.
            swallowing(self._count, readings)

    def _count(self, readings: list[T]) -> None:
        raise NotImplementedError


class Gathered(Gathering[T]):
    """Gathers readings for `count`, which always counts them, and for `also` while it is there."""

    __slots__ = ("_also", "_always")

    def __init__(self, count: Callable[[Sequence[T]], None]) -> None:
        super().__init__()
        self._always = count
        self._also: Callable[[Sequence[T]], None] | None = None

    def tell(self, also: Callable[[Sequence[T]], None] | None) -> None:
        """Let `also` count what comes from now on, in place of who did beside."""
        with self._counting:
            self._count_fresh()
            self._also = also

    def _count(self, readings: list[T]) -> None:
        # One that fails is no reason for the other to miss them.
        swallowing(self._always, readings)
        if self._also is not None:
            swallowing(self._also, readings)


class PlainHistogram(Gathering[float]):
    """Counts per bucket, and a sum."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        super().__init__()
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def read(self) -> HistogramReading:
        """Return a copy of what is held now."""
        with self._counting:
            self._count_fresh()
            return HistogramReading(self._bounds, tuple(self._counts), self._total)

    def _count(self, readings: list[float]) -> None:
        self._total += sum(readings)
        # A bucket at a time: five times as fast as one reading after another.
        readings.sort()
        counted, bounds = 0, self._bounds
        while counted < len(readings):
            index = bisect_left(bounds, readings[counted])
            is_last = index == len(bounds)
            end = len(readings) if is_last else bisect_right(readings, bounds[index], counted)
            end = max(end, counted + 1)  # what is no number has no order
            self._counts[index] += end - counted
            counted = end


@dataclass(frozen=True, slots=True)
class Described:
    """What an instrument is called and how its series differ."""

    name: str
    """Name of the instrument."""
    unit: str
    keys: tuple[str, ...]
    """Attribute names, in the order in which values are given."""
    unbounded: tuple[str, ...] = ()
    """Those of the keys that may have any number of values, such as names that clients send."""
    limit: int = 200
    """So many series have the values they are given; then unbounded values become `other`. Should
    the others not be bounded either, they become so with twice as many. What is absent stays so."""

    def admitted(self, values: Values, held: Collection[Values]) -> Values:
        """Return the values under which to count what is new beside the series that are `held`."""
        if len(held) < self.limit:
            return values
        if self.unbounded:
            named = self._as_other(values, self.unbounded)
            if named in held or len(held) < 2 * self.limit:
                return named
        return self._as_other(values, self.keys)

    def _as_other(self, values: Values, keys: tuple[str, ...]) -> Values:
        pairs = zip(self.keys, values, strict=True)
        return tuple(OTHER if key in keys and value is not None else value for key, value in pairs)

    def attributes(self, values: Values) -> dict[str, str]:
        """Return the attributes of one series."""
        pairs = zip(self.keys, values, strict=True)
        return {key: value for key, value in pairs if value is not None}


def _nothing() -> None:
    """Gather nothing: all that is recorded is in the series."""


class HistogramSeries:
    """One histogram instrument: a plain histogram per distinct attribute values.

    `gather` brings in what was recorded elsewhere, before the series is read.
    """

    def __init__(
        self,
        name: str,
        unit: str,
        bounds: Sequence[float],
        keys: tuple[str, ...] = (),
        *,
        unbounded: tuple[str, ...] = (),
        gather: Callable[[], None] = _nothing,
    ) -> None:
        self.described = Described(name, unit, keys, unbounded)
        self._gather = gather
        self._bounds = tuple(bounds)
        self._series: dict[Values, PlainHistogram] = {}

    def record(self, reading: float, *values: str | None) -> None:
        """Add one reading under these attribute values."""
        found = self._series.get(values)
        if found is None:
            found = self._admit(values)
        found.record(reading)

    def of(self, *values: str | None) -> PlainHistogram:
        """Return what holds the readings under these attribute values, to be kept and recorded on.

        It is admitted by this, and counts in the limit, read or not.
        """
        found = self._series.get(values)
        return self._admit(values) if found is None else found

    def read(self) -> list[tuple[dict[str, str], HistogramReading]]:
        """Return attributes and contents of every series, in a stable order."""
        self._gather()
        series = self._series.copy()
        return [(self.described.attributes(v), h.read()) for v, h in series.items()]

    def _admit(self, values: Values) -> PlainHistogram:
        values = self.described.admitted(values, self._series)
        return self._series.setdefault(values, PlainHistogram(self._bounds))


class PlainCounter:
    """A number that grows: `count += n` on it."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class CounterSeries:
    """One counter instrument: a plain counter per distinct attribute values.

    `gather` brings in what was recorded elsewhere, before the series is read.
    """

    def __init__(
        self,
        name: str,
        unit: str,
        keys: tuple[str, ...] = (),
        *,
        unbounded: tuple[str, ...] = (),
        gather: Callable[[], None] = _nothing,
    ) -> None:
        self.described = Described(name, unit, keys, unbounded)
        self._gather = gather
        self._series: dict[Values, PlainCounter] = {}

    def add(self, count: int, *values: str | None) -> None:
        """Add `count` under these attribute values."""
        self.of(*values).count += count

    def of(self, *values: str | None) -> PlainCounter:
        """Return what counts under these attribute values, to be kept and counted on."""
        found = self._series.get(values)
        if found is None:
            values = self.described.admitted(values, self._series)
            found = self._series.setdefault(values, PlainCounter())
        return found

    def read(self) -> list[tuple[dict[str, str], int]]:
        """Return attributes and count of every series, in a stable order."""
        self._gather()
        series = self._series.copy()
        return [
            (self.described.attributes(values), min(held.count, MOST_SENT))
            for values, held in series.items()
        ]
