"""Which variables cannot be read, of those that are: the SDK and its exporters fail over some.

What is used comes in: options, or a signal and how its collector is spoken to. Out come the
variables in question, and what to tell of them.
"""

from collections.abc import Iterable
from dataclasses import replace

from nemo_gym.telemetry.at_import import TAKEN
from nemo_gym.telemetry.endpoints import Endpoint, OtlpProtocol, Signal
from nemo_gym.telemetry.settings import TelemetryOptions
from nemo_gym.telemetry.variables import Unread, readable, unread

__all__ = ["of_exporter", "of_sdk", "unread_lines"]

_OTLP = "OTEL_EXPORTER_OTLP_"
_PYTHON = "OTEL_PYTHON_EXPORTER_OTLP_"
_OF_SDK = ("OTEL_RESOURCE_ATTRIBUTES", "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS")
_OF_SPANS = (
    *("OTEL_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"),
    *("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT"),
    *("OTEL_SPAN_EVENT_COUNT_LIMIT", "OTEL_SPAN_LINK_COUNT_LIMIT"),
    *("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT"),
)
_OF_OTLP = ("COMPRESSION", "TIMEOUT", "HEADERS", "CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE")
_OF_METRICS = (
    f"{_OTLP}METRICS_TEMPORALITY_PREFERENCE",
    f"{_OTLP}METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
)


def of_sdk() -> list[Unread]:
    """Return what the SDK reads as it is loaded and started, whatever is exported."""
    return _found((*_OF_SDK, *_OF_SPANS))


def of_exporter(signal: Signal, protocol: OtlpProtocol) -> list[Unread]:
    """Return what an exporter reads as it is made."""
    suffixes = (*_OF_OTLP, "INSECURE") if protocol == "grpc" else _OF_OTLP
    found = [each for suffix in suffixes for each in _of_pair(suffix, signal, protocol)]
    python, own = f"{_PYTHON}{protocol.upper()}_", f"{signal.upper()}_"
    names = [f"{python}{part}CREDENTIAL_PROVIDER" for part in ("", own)]
    if protocol == "grpc":
        names.append(f"{python}RETRYABLE_ERROR_CODES")
    return [*found, *_found((*names, *(_OF_METRICS if signal == "metrics" else ())))]


def unread_lines(options: TelemetryOptions) -> list[str]:
    """Return a line for each variable that would be used and cannot be read."""
    wanted = {"metrics": options.metrics.enabled, "traces": options.traces.enabled}
    if not any(wanted.values()):
        return []
    found = _found(("OTEL_SDK_DISABLED",))
    found += _found(f"OTEL_{signal.upper()}_EXPORTER" for signal, on in wanted.items() if on)
    if options.on:
        found += [*TAKEN, *_found(("OTEL_PYTHON_CONTEXT", *_OF_SDK))]
    if options.on and options.metrics.enabled and options.uses_otlp:
        found += [*_found(("OTEL_METRIC_EXPORT_INTERVAL",)), *_of_target(options, "metrics")]
    if options.on and options.exports_traces:
        names = ("OTEL_PROPAGATORS", *_OF_SPANS, *_of_sampler(options))
        found += [*_found(names), *_of_target(options, "traces")]
    return list(dict.fromkeys(each.line for each in found if each.line))


def _found(names: Iterable[str]) -> list[Unread]:
    return [found for name in names if (found := unread(name)) is not None]


def _of_target(options: TelemetryOptions, signal: Signal) -> list[Unread]:
    otlp = options.otlp
    target = Endpoint.of(otlp.endpoint, otlp.protocol, signal)
    found = _of_pair("PROTOCOL", signal, target.protocol) if otlp.protocol is None else []
    return [*found, *of_exporter(signal, target.protocol)]


def _of_pair(suffix: str, signal: Signal, protocol: OtlpProtocol) -> list[Unread]:
    """Return a variable for one signal, and the one for all, which stands in for it."""
    every, own = f"{_OTLP}{suffix}", f"{_OTLP}{signal.upper()}_{suffix}"
    stands_in = readable(every, protocol) is not None
    found = [unread(own, protocol, instead=every if stands_in else None)]
    general = unread(every, protocol)
    if general is not None and readable(own, protocol) is not None:
        general = replace(general, line="")  # it is not looked at
    return [each for each in (*found, general) if each is not None]


def _of_sampler(options: TelemetryOptions) -> list[str]:
    if options.traces.sample_ratio < 1:
        return []
    sampler = "OTEL_TRACES_SAMPLER"
    by_ratio = (readable(sampler) or "").endswith("traceidratio")
    return [sampler, "OTEL_TRACES_SAMPLER_ARG"] if by_ratio else [sampler]
