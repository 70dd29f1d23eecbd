"""What of the standard variables can be read, and what is told of those that cannot."""

import os
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.telemetry.settings import telemetry_options
from nemo_gym.telemetry.unread import of_sdk, unread_lines
from nemo_gym.telemetry.variables import readable, without

METRICS = {"metrics": {"enabled": True}, "otlp": {"endpoint": "http://c:4318"}}
TRACES = {"traces": {"enabled": True}, "otlp": {"endpoint": "http://c:4318"}}
OVER_GRPC = {"metrics": {"enabled": True}, "otlp": {"endpoint": "http://c:4317"}}
OTLP = "OTEL_EXPORTER_OTLP_"


@pytest.fixture(autouse=True)
def _no_otel_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


NEITHER_READ_NOR_USED = [
    (METRICS, f"{OTLP}COMPRESSION", "brotli", "'none' is used instead"),
    (METRICS, f"{OTLP}METRICS_COMPRESSION", "brotli", "'none' is used instead"),
    (OVER_GRPC, f"{OTLP}COMPRESSION", "deflate", "'none' is used instead"),
    (METRICS, f"{OTLP}TIMEOUT", "abc", "10 is used instead"),
    (METRICS, f"{OTLP}TIMEOUT", "0", "10 is used instead"),
    (METRICS, f"{OTLP}TIMEOUT", "nan", "10 is used instead"),
    (METRICS, f"{OTLP}PROTOCOL", "grcp", "HTTP for any other, is used instead"),
    (METRICS, f"{OTLP}PROTOCOL", "http/json", "HTTP for any other, is used instead"),
    (METRICS, f"{OTLP}CERTIFICATE", "/no/such.pem", "what the system trusts is used instead"),
    (METRICS, f"{OTLP}CLIENT_KEY", __file__, "none is used instead"),
    (METRICS, f"{OTLP}METRICS_TEMPORALITY_PREFERENCE", "DELTAS", "'cumulative' is used instead"),
    (METRICS, "OTEL_METRIC_EXPORT_INTERVAL", "abc", "export_interval_s is used instead"),
    (METRICS, "OTEL_METRIC_EXPORT_INTERVAL", "inf", "export_interval_s is used instead"),
    (METRICS, "OTEL_METRIC_EXPORT_INTERVAL", "1e30", "export_interval_s is used instead"),
    (METRICS, "OTEL_METRICS_EXPORTER", "otpl", "what the configuration says is used instead"),
    (METRICS, "OTEL_SDK_DISABLED", "1", "false is used instead"),
    (METRICS, "OTEL_RESOURCE_ATTRIBUTES", "abc", "no attribute is used instead"),
    (METRICS, "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "moon", "the default is used instead"),
    (TRACES, "OTEL_PROPAGATORS", "xray", "W3C trace context is used instead"),
    (TRACES, "OTEL_ATTRIBUTE_COUNT_LIMIT", "abc", "the default of 128 is used instead"),
    (TRACES, "OTEL_SPAN_EVENT_COUNT_LIMIT", "-1", "the default of 128 is used instead"),
    (TRACES, "OTEL_SPAN_LINK_COUNT_LIMIT", "9" * 30, "the default of 128 is used instead"),
    (TRACES, "OTEL_TRACES_SAMPLER", "xray", "'parentbased_always_on' is used instead"),
]


@pytest.mark.parametrize(("section", "variable", "value", "instead"), NEITHER_READ_NOR_USED)
def test_a_variable_that_cannot_be_read_is_told_with_its_value_and_what_is_used_instead(
    monkeypatch: pytest.MonkeyPatch,
    section: dict[str, Any],
    variable: str,
    value: str,
    instead: str,
) -> None:
    monkeypatch.setenv(variable, value)

    [line] = unread_lines(telemetry_options(section))

    assert line.startswith(f"{variable}={value!r} cannot be read: it has to be ")
    assert line.endswith(instead)
    assert readable(variable, "grpc") is None


@pytest.mark.parametrize(
    ("section", "variable", "value"),
    [
        ({}, "OTEL_PROPAGATORS", "b3"),
        ({}, "OTEL_SDK_DISABLED", "1"),
        (METRICS, "OTEL_PROPAGATORS", "b3"),
        (METRICS, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "abc"),
        (METRICS, "OTEL_BSP_SCHEDULE_DELAY", "abc"),
        (METRICS, f"{OTLP}TRACES_TIMEOUT", "abc"),
        (TRACES, "OTEL_METRIC_EXPORT_INTERVAL", "abc"),
        ({"metrics": {"enabled": True}}, f"{OTLP}TIMEOUT", "abc"),
        ({"traces": {"enabled": True, "sample_ratio": 0.5}}, "OTEL_TRACES_SAMPLER", "xray"),
        (TRACES, "OTEL_TRACES_SAMPLER_ARG", "abc"),
        (OVER_GRPC, f"{OTLP}COMPRESSION", "none"),
        (METRICS, f"{OTLP}COMPRESSION", "deflate"),
        (METRICS, f"{OTLP}COMPRESSION", " GZIP "),
        (METRICS, f"{OTLP}TIMEOUT", ""),
        (METRICS, f"{OTLP}PROTOCOL", "GRPC"),
        (METRICS, f"{OTLP}HEADERS", "api-key=a%20b,Authorization=Bearer x=y,"),
        (METRICS, f"{OTLP}CERTIFICATE", "/etc"),
        (METRICS, "OTEL_RESOURCE_ATTRIBUTES", "a=b,c="),
        (TRACES, "OTEL_PROPAGATORS", "tracecontext,baggage"),
        (TRACES, "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "0"),
        (TRACES, "OTEL_TRACES_EXPORTER", "otlp"),
    ],
)
def test_what_is_read_or_not_looked_at_is_not_worth_a_line(
    monkeypatch: pytest.MonkeyPatch, section: dict[str, Any], variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)

    assert unread_lines(telemetry_options(section)) == []


def test_headers_are_told_without_what_may_be_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{OTLP}HEADERS", "a=b, hunter2 ,c=%0A")

    [line] = unread_lines(telemetry_options(METRICS))

    assert "hunter2" not in line
    assert line.endswith("the rest of it is used instead")
    assert readable(f"{OTLP}HEADERS") == "a=b"


def test_the_variable_for_all_signals_stands_in_for_that_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(f"{OTLP}METRICS_TIMEOUT", "abc")
    monkeypatch.setenv(f"{OTLP}TIMEOUT", "3")

    [line] = unread_lines(telemetry_options(METRICS))

    assert line.endswith(f"{OTLP}TIMEOUT is used instead")


def test_one_variable_of_both_signals_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{OTLP}TIMEOUT", "abc")

    assert len(unread_lines(telemetry_options({**METRICS, **TRACES}))) == 1


def test_a_share_out_of_its_limits_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "-1")

    [line] = unread_lines(telemetry_options(TRACES))

    assert line.endswith("1 is used instead")


def test_a_pipe_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setenv(f"{OTLP}CERTIFICATE", str(tmp_path / "pipe"))

    assert readable(f"{OTLP}CERTIFICATE") is None


def test_the_environment_is_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "a=b,c")
    monkeypatch.setenv("OTEL_SPAN_LINK_COUNT_LIMIT", "abc")
    before = dict(os.environ)

    with without(of_sdk()):
        meanwhile = dict(os.environ)

    assert meanwhile["OTEL_RESOURCE_ATTRIBUTES"] == "a=b"
    assert "OTEL_SPAN_LINK_COUNT_LIMIT" not in meanwhile
    assert dict(os.environ) == before
