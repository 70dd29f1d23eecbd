"""Spans that users' own libraries make through OpenTelemetry: queued, and sent beside ours.

The global tracer provider can be set once in a process, so one object stays there for good; it
keeps spans only while traces are on. A provider that somebody else set is left alone.
"""

from collections import deque

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

__all__ = ["UserSpans", "user_spans"]

_QUEUE_LIMIT = 8192


class UserSpans(SpanProcessor):
    """Queues ended spans for the exporter's thread."""

    def __init__(self) -> None:
        self._queue: deque[ReadableSpan] = deque(maxlen=_QUEUE_LIMIT)
        self._on = False
        self._installed = False

    def attach(self, resource: Resource, ratio: float) -> None:
        """Begin to keep spans; the first time, also become the global provider if there is none."""
        self._on = True
        if self._installed or not isinstance(
            trace.get_tracer_provider(), trace.ProxyTracerProvider
        ):
            return
        self._installed = True
        provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(ratio)), resource=resource, shutdown_on_exit=False
        )
        provider.add_span_processor(self)
        trace.set_tracer_provider(provider)

    def detach(self) -> None:
        """Keep no more spans."""
        self._on = False
        self._queue.clear()

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span that is recorded."""
        context = span.get_span_context()
        if self._on and context is not None and context.trace_flags.sampled:
            self._queue.append(span)

    def drain(self, limit: int) -> list[ReadableSpan]:
        """Take at most `limit` spans, oldest first."""
        return [self._queue.popleft() for _ in range(min(limit, len(self._queue)))]


user_spans = UserSpans()
