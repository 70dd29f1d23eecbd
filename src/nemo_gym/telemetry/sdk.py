"""Plain numbers and plain spans in, the OpenTelemetry SDK's values out; imported only while on.

Here are also the reader that the exporter's thread collects with, and the bridge by which spans
that users' own libraries make nest with ours.
"""

import threading
from collections.abc import Callable, Sequence
from time import time_ns
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.metrics import Histogram as HistogramInstrument
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricReader,
    MetricsData,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from nemo_gym.telemetry.plain_meter import AttributedHistogram
from nemo_gym.telemetry.series import HistogramReading, HistogramSeries
from nemo_gym.telemetry.trace_context import TraceContext
from nemo_gym.telemetry.tracing import EndedSpan

__all__ = ["CollectingReader", "OtelBridge", "readable_span", "wants_delta"]

_SCOPE = InstrumentationScope("nemo_gym.recorded")
_KINDS = {"internal": SpanKind.INTERNAL, "server": SpanKind.SERVER, "client": SpanKind.CLIENT}


class CollectingReader(MetricReader):
    """Collects on demand what instruments hold, with the plain histograms among it."""

    def __init__(
        self,
        resource: Resource,
        histograms: Callable[[], Sequence[HistogramSeries | AttributedHistogram]],
        preferred_temporality: Any = None,
    ) -> None:
        super().__init__(preferred_temporality=preferred_temporality)
        self._resource = resource
        self._histograms = histograms
        self._taking = threading.Lock()
        self._delta = wants_delta(preferred_temporality)
        self._started_ns = time_ns()
        self._earlier: dict[tuple[str, frozenset[tuple[str, Any]]], HistogramReading] = {}
        self._collected: list[MetricsData] = []

    def take(self) -> MetricsData:
        """Return everything as of now."""
        with self._taking:
            return self._take()

    def _take(self) -> MetricsData:
        self._collected.clear()
        self.collect()
        now = time_ns()
        # One group: the OTLP encoder keeps only the last of several with the same resource.
        scopes = [
            scope
            for data in self._collected
            for group in data.resource_metrics
            for scope in group.scope_metrics
        ]
        metrics = [m for series in self._histograms() if (m := self._metric(series, now))]
        if metrics:
            scopes.append(ScopeMetrics(_SCOPE, metrics, ""))
        if self._delta:
            self._started_ns = now
        return MetricsData([ResourceMetrics(self._resource, scopes, "")] if scopes else [])

    def _metric(self, series: HistogramSeries | AttributedHistogram, now: int) -> Metric | None:
        points = [
            point
            for attributes, reading in series.read()
            if (point := self._point(series.described.name, attributes, reading, now))
        ]
        if not points:
            return None
        kind = AggregationTemporality.DELTA if self._delta else AggregationTemporality.CUMULATIVE
        described = series.described
        return Metric(described.name, "", described.unit, Histogram(points, kind))

    def _point(
        self, name: str, attributes: dict[str, Any], reading: HistogramReading, now: int
    ) -> HistogramDataPoint | None:
        if self._delta:
            key = (name, frozenset(attributes.items()))
            earlier = self._earlier.get(key)
            self._earlier[key] = reading
            reading = reading.since(earlier)
        if not reading.count:
            return None
        unknown: Any = None  # smallest and largest are optional on the wire and not kept
        return HistogramDataPoint(
            attributes,
            self._started_ns,
            now,
            reading.count,
            reading.total,
            reading.counts,
            reading.bounds,
            unknown,
            unknown,
        )

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> None:
        self._collected.append(metrics_data)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Do nothing: whoever collects ends its own thread."""


class _Running(NonRecordingSpan):
    """One of our spans as OpenTelemetry's running one; its own form is made only when asked for."""

    def __init__(self, context: TraceContext) -> None:
        self.gym_context = context

    def get_span_context(self) -> SpanContext:
        return _span_context(self.gym_context)


class OtelBridge:
    """OpenTelemetry's context as the one notion of the running span."""

    def current(self) -> TraceContext | None:
        """Return the running span, ours or one of a user's library."""
        running = trace.get_current_span()
        if isinstance(running, _Running):
            return running.gym_context
        context = running.get_span_context()
        if not context.is_valid:
            return None
        state = context.trace_state.to_header().encode("latin-1", "ignore")
        return TraceContext(context.trace_id, context.span_id, context.trace_flags.sampled, state)

    def attach(self, context: TraceContext) -> object:
        """Make `context` the parent of spans that users' libraries make in this task."""
        return otel_context.attach(trace.set_span_in_context(_Running(context)))

    def detach(self, token: Any) -> None:
        """Undo `attach`."""
        otel_context.detach(token)


def wants_delta(preferred_temporality: Any) -> bool:
    """Return whether an exporter wants each reading once rather than totals."""
    wanted = (preferred_temporality or {}).get(HistogramInstrument)
    return wanted is AggregationTemporality.DELTA


def readable_span(span: EndedSpan, resource: Resource) -> ReadableSpan:
    """Return `span` as the SDK's exporters take it."""
    failed = span.error is not None
    return ReadableSpan(
        name=span.name,
        context=_span_context(span.context),
        parent=None if span.parent is None else _span_context(span.parent),
        resource=resource,
        attributes=dict(span.attributes),
        kind=_KINDS[span.kind],
        status=Status(StatusCode.ERROR, span.error) if failed else Status(StatusCode.UNSET),
        start_time=span.started_ns,
        end_time=span.ended_ns,
        instrumentation_scope=_SCOPE,
    )


def _span_context(context: TraceContext) -> SpanContext:
    return SpanContext(
        context.trace_id,
        context.span_id,
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT),
        trace_state=TraceState.from_header([context.state.decode("latin-1")])
        if context.state
        else None,
    )
