"""Everything of one process that exports: providers, reader, threads. Imports the SDK.

One `Running` is made by `providers.start_telemetry`; what is missing from the installation shows
as a `ModuleNotFoundError` when this module is imported, before anything has begun.
"""

import logging
import os
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

import psutil  # noqa: F401 - the observer needs it: missing is found here, at the start
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExportResult

from nemo_gym import __version__
from nemo_gym.telemetry.export_loop import ExportLoop
from nemo_gym.telemetry.exporting import Exporting, set_exporting
from nemo_gym.telemetry.exposition import CONTENT_TYPE, render
from nemo_gym.telemetry.instruments import swallowing
from nemo_gym.telemetry.otlp import OtlpTarget, exporter_of, quiet_exporters
from nemo_gym.telemetry.outgoing import Outgoing
from nemo_gym.telemetry.plain_meter import AttributedHistogram, PlainMeter
from nemo_gym.telemetry.recorded import Recorded
from nemo_gym.telemetry.recorded_instruments import register
from nemo_gym.telemetry.scrape_server import ScrapeServer
from nemo_gym.telemetry.sdk import CollectingReader, OtelBridge, readable_span, wants_delta
from nemo_gym.telemetry.series import HistogramSeries
from nemo_gym.telemetry.settings import TelemetryOptions
from nemo_gym.telemetry.tracing import Tracer, set_tracer
from nemo_gym.telemetry.user_spans import user_spans
from nemo_gym.telemetry.variables import number, readable

__all__ = ["FLUSH_S", "Running"]

_logger = logging.getLogger(__name__)

FLUSH_S = 0.3
"""How long the last loop to be observed may wait for what is recorded to be sent, in seconds."""
_SPAN_INTERVAL_S = 1.0
_SPAN_BATCH = 512


class Running:
    """What exports from this process."""

    def __init__(
        self,
        options: TelemetryOptions,
        service_name: str,
        instance: str,
        warned: Callable[[str], None],
    ) -> None:
        self.instance_id = f"{instance}-{uuid.uuid4().hex[:12]}"
        self._warned = _first_of(warned)
        self.scrape_url: str | None = None
        self._resource = _resource(service_name, instance, self.instance_id)
        self._recorded = Recorded()
        self._loops: list[ExportLoop] = []
        self._outgoing: Outgoing[MetricsData] | None = None
        self._scrape: ScrapeServer | None = None
        self._quiet = quiet_exporters() if options.uses_otlp or options.exports_traces else None
        self._provider: MeterProvider | None = None
        self._scraped: CollectingReader | None = None
        self._meter: PlainMeter | None = None
        if options.metrics.enabled:
            self._start_metrics(options)
        if options.exports_traces:
            self._start_traces(options)

    def exposition(self) -> str:
        """Return the metrics as Prometheus text; empty while metrics are off."""
        if self._scraped is None:
            return ""
        return render(self._scraped.take(), self._resource.attributes)

    def keep(self) -> None:
        """Take every reading now, to be sent though what is read may end before that."""
        if self._outgoing is not None:
            self._outgoing.keep()

    def flush(self) -> None:
        """Send what is recorded, waiting a bounded time."""
        deadline = monotonic() + FLUSH_S
        for loop in self._loops:
            loop.flush(max(0.0, deadline - monotonic()))

    def stop(self, deadline: float) -> None:
        """Send what is recorded and end every thread before `deadline` (`time.monotonic`)."""
        stopping = [
            threading.Thread(
                target=loop.stop, args=(max(0.1, deadline - monotonic()),), daemon=True
            )
            for loop in self._loops
        ]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join(max(0.0, deadline - monotonic()))
        user_spans.detach()
        if self._scrape is not None:
            self._scrape.close()
        if self._provider is not None:
            self._provider.shutdown(timeout_millis=100)
        if self._quiet is not None:
            self._quiet.restore()

    def _start_metrics(self, options: TelemetryOptions) -> None:
        target = OtlpTarget.of(options.otlp, "metrics") if options.uses_otlp else None
        exporter = None if target is None else self._exporter(target)
        temporality = getattr(exporter, "_preferred_temporality", None)
        readers = [CollectingReader(self._resource, self._histograms)]
        if wants_delta(temporality):
            # What a collector is told once must not be taken away by a scrape.
            readers.append(CollectingReader(self._resource, self._histograms, temporality))
        self._scraped = readers[0]
        self._provider = MeterProvider(
            readers,
            resource=self._resource,
            exemplar_filter=AlwaysOffExemplarFilter(),
            shutdown_on_exit=False,
        )
        self._meter = PlainMeter(self._provider.get_meter("nemo_gym", __version__))
        register(self._meter, self._recorded)
        if exporter is not None and target is not None:
            self._push(readers[-1], exporter, target.shown, _interval_s(options))
        if options.serves_prometheus:
            route = (CONTENT_TYPE, lambda: self.exposition().encode())
            self._scrape = ScrapeServer({"/metrics": route})
            self.scrape_url = f"{self._scrape.url}/metrics"
        set_exporting(
            Exporting(
                self._meter,
                options.metrics.sample_interval_s,
                options.event_loop_task_count,
                self.flush,
                self._recorded,
                keep=self.keep,
            )
        )

    def _histograms(self) -> list[HistogramSeries | AttributedHistogram]:
        made = [] if self._meter is None else self._meter.histograms
        return [*made, *self._recorded.histograms()]

    def _push(self, reader: CollectingReader, exporter: Any, shown: str, interval_s: float) -> None:
        def send(readings: MetricsData) -> bool:
            return exporter.export(readings) is MetricExportResult.SUCCESS

        self._outgoing = outgoing = Outgoing(reader.take, send)
        target = f"the collector of metrics at {shown}"
        self._loop(target, interval_s, outgoing.export, exporter)

    def _start_traces(self, options: TelemetryOptions) -> None:
        target = OtlpTarget.of(options.otlp, "traces")
        exporter = self._exporter(target)
        if exporter is None:
            return
        tracer = Tracer(_ratio(options), OtelBridge())
        resource = self._resource
        user_spans.attach(resource, tracer.ratio)

        def export() -> bool:
            while batch := [
                *(readable_span(span, resource) for span in tracer.drain(_SPAN_BATCH)),
                *user_spans.drain(_SPAN_BATCH),
            ]:
                if exporter.export(batch) is not SpanExportResult.SUCCESS:
                    return False
            return True

        self._loop(f"the collector of traces at {target.shown}", _SPAN_INTERVAL_S, export, exporter)
        set_tracer(tracer)

    def _exporter(self, target: OtlpTarget) -> Any:
        try:
            return exporter_of(target)
        except Exception as error:  # telemetry never stops a server
            line = f"nothing goes to the collector of {target.signal} at {target.shown}: {error!r}"
            _logger.warning("%s", line, exc_info=True)
            self._warned(line)
            return None

    def _loop(self, target: str, interval_s: float, export: Any, exporter: Any) -> None:
        quiet = self._quiet
        self._loops.append(
            ExportLoop(
                target,
                interval_s,
                export,
                abort=exporter.shutdown,
                reason=(lambda: "") if quiet is None else quiet.reason,
                warned=self._warned,
            )
        )


def _first_of(told: Callable[[str], None]) -> Callable[[str], None]:
    """Pass on one line only: metrics and traces mostly miss the same collector."""
    left = [told]

    def tell(line: str) -> None:
        with suppress(IndexError):
            swallowing(left.pop(), line)

    return tell


def _resource(service_name: str, instance: str, instance_id: str) -> Resource:
    named = Resource.create().attributes.get("service.name", "")
    known = not str(named).startswith("unknown_service")
    attributes: dict[str, Any] = {
        "service.namespace": "nemo_gym",
        "service.version": __version__,
        "service.instance.id": instance_id,
        "nemo.gym.process": instance,
        "process.pid": os.getpid(),
    }
    # `OTEL_SERVICE_NAME` names the whole run; then the part of it is told by `nemo.gym.process`.
    if not known:
        attributes["service.name"] = service_name
    return Resource.create(attributes)


def _interval_s(options: TelemetryOptions) -> float:
    named = number("OTEL_METRIC_EXPORT_INTERVAL")
    return options.metrics.export_interval_s if named is None else max(0.1, named / 1000)


def _ratio(options: TelemetryOptions) -> float:
    named = readable("OTEL_TRACES_SAMPLER")
    if options.traces.sample_ratio < 1 or named is None:
        return options.traces.sample_ratio
    if named.endswith("always_off"):
        return 0.0
    if not named.endswith("traceidratio"):
        return 1.0
    share = number("OTEL_TRACES_SAMPLER_ARG")
    return 1.0 if share is None else share
