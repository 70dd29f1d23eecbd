"""What each standard `OTEL_*` variable may hold: a name in, its value as far as it can be read out.

What cannot be read counts as unset, as OpenTelemetry's specification asks, and so does an empty
value. Says in words what is wrong, and keeps it from who would fail over it; warns nobody, never
fails, and loads nothing of OpenTelemetry.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

__all__ = ["Unread", "number", "readable", "unread", "without"]

Kept = Callable[[str], str | None]
"""Gives of a value what can be read of it; None where that is nothing."""

_DAY_MS = 86_400_000
_LONGEST_TIMEOUT_S = 1_000_000  # more makes sockets fail
_LARGEST_LIMIT = (1 << 31) - 1
_LONGEST_SHOWN = 80
_HEADER_NAME = re.compile(r"[-_.0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[ !#-+\--:<-\[\]-~]*")  # of ASCII all but \x22 , ; \x5c and controls


@dataclass(frozen=True, slots=True)
class Unread:
    """A variable whose value cannot be read, or not as a whole."""

    variable: str
    kept: str | None
    """What can be read of it; None: nothing, so it counts as unset."""
    line: str
    """What to tell of it, in one line; empty: it is not worth one."""


@dataclass(frozen=True, slots=True)
class _Rule:
    kept: Kept
    wanted: str
    instead: str
    """What is used where nothing of it can be read."""
    is_secret: bool = False


def readable(variable: str, protocol: str | None = None) -> str | None:
    """Return what can be read of a variable; None where it is unset or nothing of it can be.

    `protocol` is how the collector is spoken to, where the variable is for that.
    """
    value = os.environ.get(variable, "").strip()
    return _rule(variable, protocol).kept(value) if value else None


def number(variable: str) -> float | None:
    """Return a variable that holds a number; None where it is unset or cannot be read."""
    value = readable(variable)
    return None if value is None else float(value)


def unread(variable: str, protocol: str | None = None, instead: str | None = None) -> Unread | None:
    """Return what is wrong with a variable; None where it is unset or can be read as a whole.

    `instead` says what is used instead, where that is not the default.
    """
    if variable not in os.environ:
        return None
    value, rule = os.environ[variable].strip(), _rule(variable, protocol)
    kept = rule.kept(value) if value else None
    if not value or (kept is not None and kept.casefold() == value.casefold()):
        return None if kept == os.environ[variable] else Unread(variable, kept, "")
    used = "the rest of it" if kept is not None else instead or rule.instead
    shown = " (not shown: a key may be in it)" if rule.is_secret else f"={_shortened(value)!r}"
    fails = "cannot be read" if kept is None else "cannot be read as a whole"
    line = f"{variable}{shown} {fails}: it has to be {rule.wanted}; {used} is used instead"
    return Unread(variable, kept, line)


@contextmanager
def without(found: Iterable[Unread]) -> Iterator[None]:
    """Keep what cannot be read out of the environment meanwhile: others may be able to read it."""
    kept = {each.variable: each.kept for each in found}
    before = {variable: os.environ[variable] for variable in kept}
    for variable, value in kept.items():
        if value is None:
            del os.environ[variable]
        else:
            os.environ[variable] = value
    try:
        yield
    finally:
        os.environ.update(before)


def _shortened(value: str) -> str:
    return value if len(value) <= _LONGEST_SHOWN else f"{value[:_LONGEST_SHOWN]}…"


def _rule(variable: str, protocol: str | None) -> _Rule:
    name = re.sub(r"^(OTEL_EXPORTER_OTLP_)(METRICS|TRACES)_(?!TEMP|DEFAULT)", r"\1", variable)
    return _GRPC_RULES[name] if protocol == "grpc" and name in _GRPC_RULES else _RULES[name]


def _one_of(*words: str) -> Kept:
    return lambda value: value.lower() if value.lower() in words else None


def _within(least: float, most: float, *, above: bool = False) -> Kept:
    def kept(value: str) -> str | None:
        try:
            read = float(value)
        except ValueError:
            return None
        return value if least <= read <= most and not (above and read == least) else None

    return kept


def _count(value: str) -> str | None:
    try:
        return value if 0 <= int(value) <= _LARGEST_LIMIT else None
    except ValueError:
        return None


def _items(is_readable: Callable[[str], bool]) -> Kept:
    """Return what keeps the readable items of a list with commas; the whole list as it is."""

    def kept(value: str) -> str | None:
        items = [item for item in value.split(",") if item.strip()]
        good = [item for item in items if is_readable(item.strip())]
        return value if items and len(good) == len(items) else ",".join(good) or None

    return kept


def _is_header(item: str) -> bool:
    name, equals, value = item.partition("=")
    if not (equals and _HEADER_NAME.fullmatch(name.strip()) and _HEADER_VALUE.fullmatch(value)):
        return False
    sent = unquote(value)
    return sent.isascii() and sent.isprintable()


def _is_pair(item: str) -> bool:
    name, equals, _ = item.partition("=")
    return bool(equals and name.strip())


def _is_word(*words: str) -> Callable[[str], bool]:
    return lambda item: item.lower() in words


def _is_installed(group: str, *built_in: str) -> Callable[[str], bool]:
    def is_readable(name: str) -> bool:
        if name in built_in:
            return True
        # Only where one of the rare variables is set that name a plug-in.
        from importlib.metadata import entry_points  # noqa: PLC0415

        return bool(entry_points(group=group, name=name))

    return is_readable


def _file(value: str) -> str | None:
    if not os.path.isfile(value):  # a pipe would be waited for
        return None
    try:
        content = Path(value).read_bytes()
    except OSError:
        return None
    return value if b"-----BEGIN " in content else None


def _file_or_directory(value: str) -> str | None:
    return value if os.path.isdir(value) else _file(value)


_FLAG = _Rule(_one_of("true", "false"), "true or false", "false")
_FILE = "a PEM file that can be read"
_SYSTEM = "what the system trusts"
_CLIENT_KEY = _Rule(_file, _FILE, "none")
_PROVIDER = _Rule(
    _items(_is_installed("opentelemetry_otlp_credential_provider")),
    "the name of an installed credential provider",
    "none",
)
_SAMPLERS = ("always_on", "always_off", "traceidratio")
_LIMIT_COUNT = _Rule(_count, "a whole number from 0 up", "the default of 128")
_LIMIT_LENGTH = _Rule(_count, "a whole number from 0 up", "no limit")
_TRACER, _METER = "opentelemetry_tracer_provider", "opentelemetry_meter_provider"
_RETRYABLE = (
    *("cancelled", "deadline_exceeded", "resource_exhausted", "aborted", "out_of_range"),
    *("unavailable", "data_loss", "unknown", "invalid_argument", "not_found", "already_exists"),
    *("permission_denied", "failed_precondition", "unimplemented", "internal", "unauthenticated"),
)

_RULES = {
    "OTEL_SDK_DISABLED": _FLAG,
    "OTEL_PROPAGATORS": _Rule(
        _items(_is_installed("opentelemetry_propagator", "tracecontext", "baggage", "none")),
        "the names of installed propagators",
        "W3C trace context",
    ),
    "OTEL_PYTHON_CONTEXT": _Rule(
        _items(_is_installed("opentelemetry_context", "contextvars_context")),
        "the name of an installed context",
        "'contextvars_context'",
    ),
    "OTEL_PYTHON_TRACER_PROVIDER": _Rule(
        _items(_is_installed(_TRACER)), "the name of an installed provider", "the default"
    ),
    "OTEL_PYTHON_METER_PROVIDER": _Rule(
        _items(_is_installed(_METER)), "the name of an installed provider", "the default"
    ),
    "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED": _FLAG,
    "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": _Rule(
        _items(_is_installed("opentelemetry_resource_detector", "otel", "service_instance", "*")),
        "the names of installed resource detectors",
        "the default",
    ),
    "OTEL_RESOURCE_ATTRIBUTES": _Rule(
        _items(_is_pair), "KEY=VALUE, with commas between several", "no attribute"
    ),
    "OTEL_METRICS_EXPORTER": _Rule(
        _items(_is_word("otlp", "prometheus", "none")),
        "'otlp', 'prometheus' or 'none'",
        "what the configuration says",
    ),
    "OTEL_METRIC_EXPORT_INTERVAL": _Rule(
        _within(0, _DAY_MS, above=True),
        "a number of milliseconds above 0, a day at most",
        "telemetry.metrics.export_interval_s",
    ),
    "OTEL_TRACES_EXPORTER": _Rule(
        _items(_is_word("otlp", "none")), "'otlp' or 'none'", "what the configuration says"
    ),
    "OTEL_TRACES_SAMPLER": _Rule(
        _one_of(*_SAMPLERS, *(f"parentbased_{name}" for name in _SAMPLERS)),
        "'always_on', 'always_off' or 'traceidratio', with 'parentbased_' before it or without",
        "'parentbased_always_on'",
    ),
    "OTEL_TRACES_SAMPLER_ARG": _Rule(_within(0, 1), "a number from 0 to 1", "1"),
    "OTEL_ATTRIBUTE_COUNT_LIMIT": _LIMIT_COUNT,
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": _LIMIT_LENGTH,
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": _LIMIT_COUNT,
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": _LIMIT_LENGTH,
    "OTEL_SPAN_EVENT_COUNT_LIMIT": _LIMIT_COUNT,
    "OTEL_SPAN_LINK_COUNT_LIMIT": _LIMIT_COUNT,
    "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT": _LIMIT_COUNT,
    "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT": _LIMIT_COUNT,
    "OTEL_EXPORTER_OTLP_PROTOCOL": _Rule(
        _one_of("grpc", "http/protobuf"),
        "'grpc' or 'http/protobuf'",
        "gRPC for port 4317, and HTTP for any other,",
    ),
    "OTEL_EXPORTER_OTLP_COMPRESSION": _Rule(
        _one_of("none", "gzip", "deflate"), "'none', 'gzip' or 'deflate' over HTTP", "'none'"
    ),
    "OTEL_EXPORTER_OTLP_TIMEOUT": _Rule(
        _within(0, _LONGEST_TIMEOUT_S, above=True), "a number of seconds above 0", "10"
    ),
    "OTEL_EXPORTER_OTLP_HEADERS": _Rule(
        _items(_is_header),
        "NAME=VALUE, with commas between several",
        "no header",
        is_secret=True,
    ),
    "OTEL_EXPORTER_OTLP_CERTIFICATE": _Rule(_file_or_directory, _FILE, _SYSTEM),
    "OTEL_EXPORTER_OTLP_CLIENT_KEY": _CLIENT_KEY,
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": _CLIENT_KEY,
    "OTEL_EXPORTER_OTLP_INSECURE": _FLAG,
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": _Rule(
        _one_of("cumulative", "delta", "lowmemory"),
        "'cumulative', 'delta' or 'lowmemory'",
        "'cumulative'",
    ),
    "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": _Rule(
        _one_of("explicit_bucket_histogram", "base2_exponential_bucket_histogram"),
        "'explicit_bucket_histogram' or 'base2_exponential_bucket_histogram'",
        "'explicit_bucket_histogram'",
    ),
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER": _PROVIDER,
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_METRICS_CREDENTIAL_PROVIDER": _PROVIDER,
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER": _PROVIDER,
    "OTEL_PYTHON_EXPORTER_OTLP_GRPC_CREDENTIAL_PROVIDER": _PROVIDER,
    "OTEL_PYTHON_EXPORTER_OTLP_GRPC_METRICS_CREDENTIAL_PROVIDER": _PROVIDER,
    "OTEL_PYTHON_EXPORTER_OTLP_GRPC_TRACES_CREDENTIAL_PROVIDER": _PROVIDER,
    "OTEL_PYTHON_EXPORTER_OTLP_GRPC_RETRYABLE_ERROR_CODES": _Rule(
        _items(_is_word(*_RETRYABLE)), "the names of gRPC's status codes", "the default"
    ),
}
_GRPC_RULES = {
    "OTEL_EXPORTER_OTLP_COMPRESSION": _Rule(
        _one_of("none", "gzip"), "'none' or 'gzip' over gRPC", "'none'"
    ),
    "OTEL_EXPORTER_OTLP_CERTIFICATE": _Rule(_file, _FILE, _SYSTEM),
}
