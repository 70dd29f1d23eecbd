"""Traces on for the length of a test, and the spans that ended in it."""

from collections.abc import Iterator
from contextlib import contextmanager

from nemo_gym.telemetry.tracing import Bridge, EndedSpan, Tracer, set_tracer

__all__ = ["by_name", "tracing_on"]


@contextmanager
def tracing_on(ratio: float = 1.0, bridge: Bridge | None = None) -> Iterator[Tracer]:
    """Trace with a tracer that nothing exports."""
    tracer = Tracer(ratio, bridge)
    set_tracer(tracer)
    try:
        yield tracer
    finally:
        set_tracer(None)


def by_name(tracer: Tracer) -> dict[str, EndedSpan]:
    """Return the ended spans by name."""
    return {span.name: span for span in tracer.ended}
