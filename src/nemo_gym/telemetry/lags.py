"""How late the loops of a process were: milliseconds a sample in, a few numbers of a stretch out.

All samples are counted, so that those between two looks can be told; a few are kept as they came.
No clock, no loop.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from nemo_gym.telemetry.live import LIVE_DURATION_BOUNDARIES_MS
from nemo_gym.telemetry.series import HistogramReading, PlainHistogram

__all__ = ["HELD_MS", "NO_LAGS", "Lag", "Lags", "lag_of", "lag_of_samples"]

NO_LAGS = HistogramReading((), (0,), 0.0)
"""No sample was taken."""
HELD_MS = 5.0
"""A loop that is later than this was held; an idle one is late by a millisecond or two."""
_KEPT = 512


@dataclass(frozen=True, slots=True)
class Lag:
    """What samples come to, in milliseconds; None where they are too few."""

    p50_ms: float | None = None
    p99_ms: float | None = None
    mean_ms: float | None = None
    """The longest left out, so that a single pause makes none."""
    held_share: float | None = None
    """Of the time, the part in which something held the loop, for longer than `HELD_MS`.

    Samples are taken at random instants, so their share is that of the time, on average. Time in
    which the loop had no core is left out: that holds up a loop that nothing holds.
    """


class Lags:
    """Samples of one process, in bounded memory."""

    __slots__ = ("_all", "held", "recent", "recent_held")

    def __init__(self) -> None:
        self._all = PlainHistogram(LIVE_DURATION_BOUNDARIES_MS)
        self.recent: deque[float] = deque(maxlen=_KEPT)
        """The last ones, oldest first."""
        self.recent_held: deque[bool] = deque(maxlen=_KEPT)
        """Of the same, whether the loop was held."""
        self.held = 0
        """How many of all found the loop held."""

    def record(self, lag_ms: float, coreless_ms: float = 0.0) -> None:
        """Add one sample; the loop had no core for up to `coreless_ms` of the lag."""
        self._all.record(lag_ms)
        held = lag_ms - coreless_ms > HELD_MS
        self.held += held
        self.recent.append(lag_ms)
        self.recent_held.append(held)

    def read(self) -> HistogramReading:
        """Return all samples so far."""
        return self._all.read().trimmed()


def lag_of(samples: HistogramReading, held: int | None = None) -> Lag:
    """Return what counted samples come to, within 2 % of the longest; `held` found it held."""
    longest, rest = samples.quantile(1.0), samples.count - 1
    if longest is None:
        return Lag()
    mean = max(0.0, samples.total - longest) / rest if rest > 0 else None
    share = None if held is None else held / samples.count
    return Lag(samples.quantile(0.5), samples.quantile(0.99), mean, share)


def lag_of_samples(samples: Sequence[float], held: Sequence[bool] = ()) -> Lag:
    """Return what samples come to; `held` says of each of them whether it found the loop held."""
    ordered = sorted(samples)
    if not ordered:
        return Lag()
    rest = ordered[:-1]
    mean = sum(rest) / len(rest) if rest else None
    share = sum(held) / len(held) if held else None
    return Lag(_quantile(ordered, 0.5), _quantile(ordered, 0.99), mean, share)


def _quantile(ordered: Sequence[float], q: float) -> float:
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]
