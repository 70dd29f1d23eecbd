"""What one moment gives to several histograms: a number for each in, told and counted together.

A rollout that ends has four sizes, a row that is written a size and a time. On histograms of ours
such readings are gathered and counted many at a time; on others each is recorded as it comes. No
clock, no OpenTelemetry.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Protocol

from nemo_gym.telemetry.instruments import swallowing
from nemo_gym.telemetry.plain_meter import AttributedHistogram
from nemo_gym.telemetry.series import Gathered

__all__ = ["Together", "TogetherOf", "together"]

_Reading = tuple[float, ...]


class Together(Protocol):
    """Takes readings of several histograms at once; nothing of it raises."""

    def record(self, reading: _Reading) -> None:
        """Take a number for each histogram, in their order."""
        ...

    def record_all(self, readings: Sequence[_Reading]) -> None:
        """Take several such readings."""
        ...


def together(*histograms: Any) -> Together:
    """Return what takes a number for each of `histograms`, instruments of any meter."""
    plain = [each for each in histograms if isinstance(each, AttributedHistogram)]
    if len(plain) < len(histograms):
        return _OneByOne(histograms)

    def count(readings: Sequence[_Reading]) -> None:
        for histogram, column in zip(plain, zip(*readings, strict=True), strict=True):
            histogram.record_all(column)

    gathered = Gathered(count)
    for histogram in plain:
        histogram.gather_by(gathered.gather)
    return gathered


class TogetherOf:
    """Records on the attributes `names` of `owner` together, on others once they are replaced."""

    def __init__(self, owner: object, names: Sequence[str], made: Together) -> None:
        self._owner = owner
        self._read = attrgetter(*names)
        self._histograms = self._read(owner)
        self._made = made

    def record(self, reading: _Reading) -> None:
        """Take a number for each histogram, in their order."""
        swallowing(self._current().record, reading)

    def record_all(self, readings: Sequence[_Reading]) -> None:
        """Take several such readings."""
        swallowing(self._current().record_all, readings)

    def _current(self) -> Together:
        histograms = self._read(self._owner)
        if histograms != self._histograms:
            self._histograms, self._made = histograms, together(*histograms)
        return self._made


class _OneByOne:
    def __init__(self, histograms: Sequence[Any]) -> None:
        self._histograms = histograms

    def record(self, reading: _Reading) -> None:
        for histogram, value in zip(self._histograms, reading, strict=True):
            swallowing(histogram.record, value)

    def record_all(self, readings: Sequence[_Reading]) -> None:
        for reading in readings:
            self.record(reading)
