"""Exporters to an OpenTelemetry collector, over HTTP or gRPC; imported only where one is used.

What the configuration leaves open, the exporters take from the standard `OTEL_*` variables.
"""

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nemo_gym.telemetry.endpoints import Endpoint, OtlpProtocol, Signal
from nemo_gym.telemetry.settings import OtlpOptions
from nemo_gym.telemetry.unread import of_exporter
from nemo_gym.telemetry.variables import readable, without

__all__ = ["OtlpTarget", "exporter_of", "quiet_exporters"]

_LOGGER_OF_EXPORTERS = "opentelemetry.exporter.otlp"
_LONGEST_REASON = 200
_VERBOSITY = "GRPC_VERBOSITY"


@dataclass(frozen=True, slots=True)
class OtlpTarget:
    """Where one signal goes."""

    signal: Signal
    protocol: OtlpProtocol
    endpoint: str | None
    """Complete URL for the exporter; None leaves it to the environment."""
    shown: str
    """For messages: without user, password and query; with TLS where nobody wrote so."""

    @classmethod
    def of(cls, options: OtlpOptions, signal: Signal) -> "OtlpTarget":
        """Return the target that the configuration and the environment name."""
        named = Endpoint.of(options.endpoint, options.protocol, signal)
        endpoint = options.endpoint or None
        if endpoint is not None and named.protocol == "http":
            endpoint = _with_signal_path(endpoint, signal)
        return cls(signal, named.protocol, endpoint, named.asked(signal))


def exporter_of(target: OtlpTarget) -> Any:
    """Return an OTLP exporter of the target's signal."""
    with without(of_exporter(target.signal, target.protocol)), _quiet_core():
        return _EXPORTERS[target.signal](target)


def _metric_exporter(target: OtlpTarget) -> Any:
    # Only the one that is used: who sends over HTTP need not load gRPC.
    if target.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (  # noqa: PLC0415
            OTLPMetricExporter as Exporter,
        )

        return Exporter(endpoint=target.endpoint, **_grpc_options(target))
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415
        OTLPMetricExporter,
    )

    return OTLPMetricExporter(endpoint=target.endpoint)


def _span_exporter(target: OtlpTarget) -> Any:
    # Only the one that is used, as above.
    if target.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter as Exporter,
        )

        return Exporter(endpoint=target.endpoint, **_grpc_options(target))
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )

    return OTLPSpanExporter(endpoint=target.endpoint)


_EXPORTERS: Mapping[Signal, Callable[[OtlpTarget], Any]] = {
    "metrics": _metric_exporter,
    "traces": _span_exporter,
}


@contextmanager
def _quiet_core() -> Iterator[None]:
    """Keep gRPC's C core from the console: it writes there itself, past every logger.

    It reads the variable once, as it is loaded. What a process starts must not inherit it.
    """
    if _VERBOSITY in os.environ:
        yield
        return
    os.environ[_VERBOSITY] = "NONE"
    try:
        yield
    finally:
        del os.environ[_VERBOSITY]


class quiet_exporters:  # noqa: N801 - used like a function
    """Keeps the exporters' own log, a line a try, from the console; holds the last line."""

    def __init__(self) -> None:
        self._logger = logging.getLogger(_LOGGER_OF_EXPORTERS)
        self._propagated = self._logger.propagate
        self._handler = _LastLine()
        self._logger.addHandler(self._handler)
        self._logger.propagate = False

    def reason(self) -> str:
        """Return why the last export failed, in the exporter's words, without a URL's query."""
        return re.sub(r"\?\S+", "?…", cause_in(self._handler.last))[:_LONGEST_REASON]

    def restore(self) -> None:
        """Let the exporters log as before."""
        self._logger.removeHandler(self._handler)
        self._logger.propagate = self._propagated


def cause_in(line: str) -> str:
    """Return the innermost cause that a line of an exporter's log tells, else the whole line."""
    found = _CAUSE.search(line)
    if found is None:
        return line
    # Over gRPC it ends in words that are of no use, such as `OK`.
    if handshake := _HANDSHAKE.search(found[1]):
        why = (handshake[1] or "").lower().replace("_", " ")
        return f"TLS handshake failed: {why}" if why else "TLS handshake failed"
    return re.sub(r"\[Errno -?\d+\] ", "", found[1].rpartition(": ")[2]).strip("\"']")


_ENDED_BY_US = ("hutdown", "StatusCode.CANCELLED")
_CAUSE = re.compile(
    r"(?:Caused by \w+\((?=.*encountered while)|[Ee]rror details: )(.*?)(?:\)\) encountered.*)?$"
)
_HANDSHAKE = re.compile(
    r"(?:tls|ssl) handshake failed(?:.*?OPENSSL_internal:(\w+))?", re.IGNORECASE
)


class _LastLine(logging.Handler):
    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        # What follows from ending the export says nothing of why it had to be ended.
        if not any(word in line for word in _ENDED_BY_US):
            self.last = line


def _with_signal_path(endpoint: str, signal: Signal) -> str:
    path = f"/v1/{signal}"
    base = endpoint.rstrip("/")
    for other in ("/v1/metrics", "/v1/traces"):
        base = base.removesuffix(other)
    return base + path


def _grpc_options(target: OtlpTarget) -> dict[str, Any]:
    from grpc import Compression  # type: ignore[import-untyped] # noqa: PLC0415 - as above

    own = readable(f"OTEL_EXPORTER_OTLP_{target.signal.upper()}_COMPRESSION", "grpc")
    named = own or readable("OTEL_EXPORTER_OTLP_COMPRESSION", "grpc")
    return {
        # Left to the environment unless the configured URL says it.
        "insecure": None if target.endpoint is None else not target.endpoint.startswith("https://"),
        # Over gRPC the exporters do not know the standard's own word `none`.
        "compression": Compression.Gzip if named == "gzip" else Compression.NoCompression,
    }
