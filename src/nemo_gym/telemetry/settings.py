"""The `telemetry` section of a configuration, checked. A mapping in, typed options out."""

import os
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nemo_gym.errors import ConfigMistake

__all__ = [
    "MetricsOptions",
    "OtlpOptions",
    "PrometheusOptions",
    "TelemetryOptions",
    "TracesOptions",
    "telemetry_options",
]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MetricsOptions(_Section):
    """`telemetry.metrics`: numbers that say what slows a process down."""

    enabled: bool = False
    """Whether metrics are measured and exported."""
    sample_interval_s: float = Field(default=1.0, gt=0)
    """Seconds between two samples of an event loop."""
    export_interval_s: float = Field(default=10.0, gt=0)
    """Seconds between two exports to a collector; `OTEL_METRIC_EXPORT_INTERVAL` (ms) wins."""


class OtlpOptions(_Section):
    """`telemetry.otlp`: export to an OpenTelemetry collector."""

    enabled: bool = False
    """Whether it is used; an endpoint, here or in `OTEL_EXPORTER_OTLP_ENDPOINT`, says so too."""
    protocol: Literal["http", "grpc"] | None = None
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
        if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
            return False
        return self.metrics.enabled or self.traces.enabled

    @property
    def uses_otlp(self) -> bool:
        """Whether a collector gets anything."""
        named = self.otlp.endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
        return self.otlp.enabled or bool(named)

    @property
    def serves_prometheus(self) -> bool:
        """Whether metrics can be scraped; so they can where they would go nowhere else."""
        return self.metrics.enabled and (self.prometheus.enabled or not self.uses_otlp)


def telemetry_options(settings: Mapping[str, object]) -> TelemetryOptions:
    """Return the options that `settings`, the content of the `telemetry` key, stand for.

    Raises `ConfigMistake` that names the first wrong key.
    """
    try:
        return TelemetryOptions.model_validate(settings)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(["telemetry", *(str(part) for part in first["loc"])])
        raise ConfigMistake(
            f"{key}: {first['msg']}", mend="see the settings of telemetry in docs/telemetry.md"
        ) from None
