"""Make instruments and record on them so that one that fails stops no other, and no caller."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Silent", "make", "make_histogram", "swallowing"]

_logger = logging.getLogger(__name__)


class Silent:
    """Stands in for an instrument that could not be made: takes every reading, keeps none."""

    def record(self, *_args: Any, **_kwargs: Any) -> None:
        """Drop a histogram reading."""

    def add(self, *_args: Any, **_kwargs: Any) -> None:
        """Drop a counter's increment."""

    def set(self, *_args: Any, **_kwargs: Any) -> None:
        """Drop a gauge's value."""


def make(meter: Any, kind: str, name: str, unit: str, **options: Any) -> Any:
    """Return `meter.create_<kind>(name, …)`, or a silent stand-in when that fails."""
    try:
        return getattr(meter, f"create_{kind}")(name, unit=unit, **options)
    except Exception:  # telemetry never stops a server
        _logger.warning("the instrument %s could not be made", name, exc_info=True)
        return Silent()


def make_histogram(meter: Any, name: str, unit: str, boundaries: Sequence[float]) -> Any:
    """Return a histogram with `boundaries` as its buckets' upper bounds, in `unit`."""
    return make(meter, "histogram", name, unit, explicit_bucket_boundaries_advisory=boundaries)


def swallowing(record: Callable[..., Any], *args: Any) -> bool:
    """Call `record(*args)`; a failure is logged and goes no further. Returns whether it did it."""
    try:
        record(*args)
    except Exception:  # telemetry never stops a server
        _logger.warning("a reading could not be recorded", exc_info=True)
        return False
    return True
