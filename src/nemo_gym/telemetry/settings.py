"""The `telemetry` section of a configuration, checked. A mapping in, typed options out."""

import os
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nemo_gym.errors import ConfigMistake
from nemo_gym.telemetry.endpoints import Endpoint, OtlpProtocol, Signal
from nemo_gym.telemetry.variables import readable

__all__ = [
    "MetricsOptions",
    "OtlpOptions",
    "PrometheusOptions",
    "TelemetryOptions",
    "TracesOptions",
    "endpoint_mistakes",
    "idle_settings",
    "telemetry_options",
]


_METRICS_EXPORTER = "OTEL_METRICS_EXPORTER"
_TRACES_EXPORTER = "OTEL_TRACES_EXPORTER"
_METRICS_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MetricsOptions(_Section):
    """`telemetry.metrics`: numbers that say what slows a process down."""

    enabled: bool = False
    """Whether metrics are measured and exported."""
    sample_interval_s: float = Field(default=1.0, gt=0, le=3600)
    """Seconds between two samples of an event loop, on average, an hour at most."""
    export_interval_s: float = Field(default=10.0, gt=0, le=86_400)
    """Seconds between two exports to a collector, a day at most.

    `OTEL_METRIC_EXPORT_INTERVAL` (ms) wins.
    """


class OtlpOptions(_Section):
    """`telemetry.otlp`: export to an OpenTelemetry collector."""

    enabled: bool = False
    """Whether it is used; an endpoint, here or in `OTEL_EXPORTER_OTLP_ENDPOINT`, says so too.

    Unsaid and without an endpoint here, `OTEL_METRICS_EXPORTER=none` and
    `OTEL_TRACES_EXPORTER=none` keep that signal from it.
    """
    protocol: OtlpProtocol | None = None
    """None: `OTEL_EXPORTER_OTLP_PROTOCOL`, else gRPC for port 4317 and HTTP for any other."""
    endpoint: str | None = None
    """URL of the collector. None: `OTEL_EXPORTER_OTLP_ENDPOINT`, or the standard local port."""


class PrometheusOptions(_Section):
    """`telemetry.prometheus`: an endpoint to be scraped."""

    enabled: bool = False
    """Whether every process answers `GET /metrics` on a port of its own."""


class TracesOptions(_Section):
    """`telemetry.traces`: one trace a rollout, across every server."""

    enabled: bool = False
    """Whether spans are made and exported."""
    sample_ratio: float = Field(default=1.0, ge=0, le=1)
    """Share of rollouts that are traced; at 1, `OTEL_TRACES_SAMPLER` and its argument decide."""


class TelemetryOptions(_Section):
    """`telemetry`: what leaves a process about its own work. Everything is off by default."""

    metrics: MetricsOptions = MetricsOptions()
    otlp: OtlpOptions = OtlpOptions()
    prometheus: PrometheusOptions = PrometheusOptions()
    traces: TracesOptions = TracesOptions()
    event_loop_task_count: bool = False
    """Whether a sample also walks every task of its loop; costs time with many tasks."""

    @property
    def on(self) -> bool:
        """Whether anything is exported."""
        return not _disabled() and (self.metrics.enabled or self.exports_traces)

    @property
    def uses_otlp(self) -> bool:
        """Whether a collector gets metrics; what is said of `enabled` wins over an endpoint.

        Either of them in the configuration wins over `OTEL_METRICS_EXPORTER=none`.
        """
        if _says(self.otlp, "enabled"):
            return self.otlp.enabled
        by_variable = any(map(os.environ.get, _METRICS_ENDPOINTS)) and not _none(_METRICS_EXPORTER)
        return bool(self.otlp.endpoint) or by_variable

    @property
    def exports_traces(self) -> bool:
        """Whether a collector gets spans, as far as telemetry is not off as a whole.

        `OTEL_TRACES_EXPORTER=none` says no, unless the configuration asks for a collector.
        """
        otlp = self.otlp
        asked = otlp.enabled if _says(otlp, "enabled") else bool(otlp.endpoint)
        return self.traces.enabled and (asked or not _none(_TRACES_EXPORTER))

    @property
    def serves_prometheus(self) -> bool:
        """Whether metrics can be scraped; unsaid, so they can where they would go nowhere else."""
        said = self.prometheus.enabled if _says(self.prometheus, "enabled") else not self.uses_otlp
        return self.metrics.enabled and said


def idle_settings(options: TelemetryOptions) -> list[str]:
    """Return a line for each part that asks for something and gets nothing, with its mend.

    A switch that is off in so many words is meant: what it leaves idle is not worth a line.
    """
    metrics, traces = _says(options.metrics, "enabled"), _says(options.traces, "enabled")
    lines = [] if metrics else _idle(_of_metrics(options), "metrics are off", _METRICS_ON)
    of_traces = _said("traces", options.traces)
    if not traces:
        lines += _idle(of_traces, "traces are off", _TRACES_ON)
    elif options.traces.enabled and not options.exports_traces:
        lines += _idle(of_traces, *_no_collector([_TRACES_EXPORTER]))
    of_otlp = _said("otlp", options.otlp)
    if not (metrics or traces):
        either = f"{_METRICS_ON} or {_TRACES_ON}"
        lines += _idle(of_otlp, "metrics and traces are off", either)
    elif not (_says(options.otlp, "enabled") or _collector_used(options)):
        wanted = {
            _METRICS_EXPORTER: options.metrics.enabled,
            _TRACES_EXPORTER: options.traces.enabled,
        }
        on = [variable for variable, enabled in wanted.items() if enabled]
        lines += _idle(of_otlp, *_no_collector(on)) if on else []
    if _disabled() and (options.metrics.enabled or options.traces.enabled):
        lines.append("telemetry is off whatever is configured: OTEL_SDK_DISABLED=true is set")
    return lines


_METRICS_ON = "telemetry.metrics.enabled=true"
_TRACES_ON = "telemetry.traces.enabled=true"


def _collector_used(options: TelemetryOptions) -> bool:
    return options.exports_traces or (options.metrics.enabled and options.uses_otlp)


def _no_collector(variables: list[str]) -> tuple[str, str]:
    """Return why signals with these exporters go to no collector, and what to add."""
    off = [f"{variable}=none" for variable in variables if _none(variable)]
    if not off:
        return "no collector is named", "telemetry.otlp.endpoint=URL"
    return (
        f"the environment says {' and '.join(off)}",
        "telemetry.otlp.enabled=true, or unset that",
    )


def _none(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() == "none"


def _of_metrics(options: TelemetryOptions) -> list[str]:
    tasks = ["telemetry.event_loop_task_count"] if options.event_loop_task_count else []
    return [*_said("metrics", options.metrics), *_said("prometheus", options.prometheus), *tasks]


def _disabled() -> bool:
    return readable("OTEL_SDK_DISABLED") == "true"


def _says(section: _Section, name: str) -> bool:
    return name in section.model_fields_set


def _said(name: str, section: _Section) -> list[str]:
    """Return the keys of a section that ask for something: all but a switch that is off."""
    return [
        f"telemetry.{name}.{key}"
        for key in sorted(section.model_fields_set)
        if key != "enabled" or getattr(section, key)
    ]


def _idle(keys: list[str], why: str, add: str) -> list[str]:
    if not keys:
        return []
    do = "does" if len(keys) == 1 else "do"
    return [f"{' and '.join(keys)} {do} nothing: {why}; add {add}"]


def telemetry_options(settings: Mapping[str, object]) -> TelemetryOptions:
    """Return the options that `settings`, the content of the `telemetry` key, stand for.

    Raises `ConfigMistake` that names the first wrong key, or the variable that names a collector
    which cannot be one. Of a signal that is off, or goes to no collector, none is looked at.
    """
    options = _validated(settings)
    for endpoint in _endpoints(options):
        endpoint.check()
    return options


def endpoint_mistakes(settings: Mapping[str, object]) -> list[ConfigMistake]:
    """Return what is wrong with the collectors that `settings` send to.

    Nothing where a key or a type is wrong: nobody knows then what is meant to go there.
    """
    try:
        endpoints = _endpoints(_validated(settings))
    except ConfigMistake:
        return []
    found: dict[str, ConfigMistake] = {}
    for endpoint in endpoints:
        try:
            endpoint.check()
        except ConfigMistake as mistake:
            found[str(mistake)] = mistake  # both signals may go the same way
    return list(found.values())


def _endpoints(options: TelemetryOptions) -> list[Endpoint]:
    """Return where something is sent."""
    otlp = options.otlp
    sent: dict[Signal, bool] = {
        "metrics": options.metrics.enabled and options.uses_otlp,
        "traces": options.exports_traces,
    }
    signals = [signal for signal, is_sent in sent.items() if options.on and is_sent]
    return [Endpoint.of(otlp.endpoint, otlp.protocol, signal) for signal in signals]


def _validated(settings: Mapping[str, object]) -> TelemetryOptions:
    try:
        return TelemetryOptions.model_validate(settings)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(["telemetry", *(str(part) for part in first["loc"])])
        raise ConfigMistake(
            f"{key}: {first['msg']}", mend="see the settings of telemetry in docs/telemetry.md"
        ) from None
