"""The settings of a run that the product itself reads, with type and default.

Any other key at the top of a configuration is a server, or a value that others refer to. A further
setting of the product is one field here; its key, type, default and documentation follow from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from nemo_gym.config.typed import Bounds, with_defaults

__all__ = [
    "CREDENTIAL_KEYS",
    "DEFAULT_HEAD_PORT",
    "HeadServerSettings",
    "MetricsSettings",
    "OtlpSettings",
    "PrometheusSettings",
    "RootSettings",
    "TelemetrySettings",
    "TracesSettings",
    "root_settings",
]

CREDENTIAL_KEYS = ("policy_base_url", "policy_api_key", "policy_model_name")
"""What `env.yaml` holds, in the order it is shown to the user."""

DEFAULT_HEAD_PORT = 11000


@dataclass(frozen=True, slots=True)
class HeadServerSettings:
    """The address book of a run."""

    host: str = "127.0.0.1"
    """Interface it binds to."""
    port: Annotated[int | None, Bounds(ge=0, le=65535)] = None
    """Port it takes. None: 11000 under `gym env start`, a free one under `gym eval run`."""


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Numbers that say what slows a process down."""

    enabled: bool = False
    """Whether metrics are measured and exported."""
    sample_interval_s: Annotated[float, Bounds(gt=0, le=3600)] = 1.0
    """Seconds between two samples of an event loop, an hour at most."""
    export_interval_s: Annotated[float, Bounds(gt=0, le=86_400)] = 10.0
    """Seconds between two exports to a collector, a day at most."""


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """Export to an OpenTelemetry collector; the standard `OTEL_*` variables are honoured."""

    enabled: bool = False
    """Whether metrics (and traces, where they are on) go to a collector."""
    protocol: Literal["http", "grpc"] | None = None
    """How the collector is spoken to. None: `OTEL_EXPORTER_OTLP_PROTOCOL`, else by the port."""
    endpoint: str | None = None
    """URL of the collector. None: `OTEL_EXPORTER_OTLP_ENDPOINT`, or the standard local port."""


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """An endpoint to be scraped."""

    enabled: bool = False
    """Whether every process answers `GET /metrics`."""


@dataclass(frozen=True, slots=True)
class TracesSettings:
    """One trace a rollout, across every server."""

    enabled: bool = False
    """Whether spans are made and exported."""
    sample_ratio: Annotated[float, Bounds(ge=0, le=1)] = 1.0
    """Share of rollouts that are traced, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """What leaves the process about its own work."""

    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    otlp: OtlpSettings = field(default_factory=OtlpSettings)
    prometheus: PrometheusSettings = field(default_factory=PrometheusSettings)
    traces: TracesSettings = field(default_factory=TracesSettings)
    event_loop_task_count: bool = False
    """Whether every sample also walks the tasks of its loop; costs time with many tasks."""


@dataclass(frozen=True, slots=True)
class RootSettings:
    """Every setting of the product at the top of a configuration."""

    observability_enabled: bool = False
    """Whether model calls and agent observations are captured."""
    model_call_capture_dir: str | None = None
    """Absolute directory of the captures; needed when capture is on."""
    model_call_capture_max_body_bytes: Annotated[int, Bounds(ge=1)] = 256 << 20
    """Most bytes kept of one body, after decompression; what is longer is cut and flagged."""
    head_server: HeadServerSettings = field(default_factory=HeadServerSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    responses_create_params: Mapping[str, object] = field(default_factory=dict)
    """Laid over the request of every row, such as `temperature`; any key is allowed."""
    policy_base_url: str | list[str] | None = None
    """URL of the model's provider, with or without `/v1`, and without a route behind it."""
    policy_api_key: str | None = field(default=None, repr=False)
    """Key of the model's provider."""
    policy_model_name: str | None = None
    """Name of the model at its provider."""


def root_settings(tree: Mapping[str, object]) -> RootSettings:
    """Return the product's settings of a resolved configuration (`RunConfig.tree`)."""
    return with_defaults(RootSettings, tree)
