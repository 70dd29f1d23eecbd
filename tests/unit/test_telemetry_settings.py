"""The `telemetry` section: what is on, where it goes, and mistakes named by key."""

import os
from dataclasses import asdict
from typing import Any

import pytest

from nemo_gym.config import schema
from nemo_gym.errors import ConfigMistake
from nemo_gym.telemetry.otlp import OtlpTarget
from nemo_gym.telemetry.settings import (
    OtlpOptions,
    TelemetryOptions,
    idle_settings,
    telemetry_options,
)

ON = {"metrics": {"enabled": True}}
INFINITE = float("inf")


@pytest.fixture(autouse=True)
def _no_otel_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


def test_nothing_is_on_by_default() -> None:
    options = telemetry_options({})

    assert (options.on, options.uses_otlp, options.serves_prometheus) == (False, False, False)


def test_metrics_alone_can_be_scraped() -> None:
    options = telemetry_options(ON)

    assert (options.on, options.uses_otlp, options.serves_prometheus) == (True, False, True)


def test_with_a_collector_scraping_is_asked_for_separately() -> None:
    pushed = telemetry_options({**ON, "otlp": {"endpoint": "http://c:4318"}})
    both = telemetry_options({**ON, "otlp": {"enabled": True}, "prometheus": {"enabled": True}})

    assert (pushed.uses_otlp, pushed.serves_prometheus) == (True, False)
    assert (both.uses_otlp, both.serves_prometheus) == (True, True)


@pytest.mark.parametrize("signal", ["", "METRICS_"], ids=["all-signals", "metrics"])
def test_the_standard_endpoint_variable_is_a_collector(
    monkeypatch: pytest.MonkeyPatch, signal: str
) -> None:
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT", "http://c:4317")

    assert telemetry_options(ON).uses_otlp


def test_a_switch_that_is_off_in_so_many_words_is_off_whatever_else_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317")

    pushed = telemetry_options({**ON, "otlp": {"enabled": False, "endpoint": "http://c:4318"}})
    scraped = telemetry_options({**ON, "prometheus": {"enabled": False}})

    assert (pushed.uses_otlp, pushed.serves_prometheus) == (False, True)
    assert (scraped.uses_otlp, scraped.serves_prometheus) == (True, False)


COLLECTOR = {"endpoint": "http://c:4318"}


@pytest.mark.parametrize(
    ("section", "keys", "mend"),
    [
        (
            {"prometheus": {"enabled": True}},
            "telemetry.prometheus.enabled does nothing",
            "add telemetry.metrics.enabled=true",
        ),
        (
            {"prometheus": {"enabled": True}, "traces": {"enabled": True}},
            "telemetry.prometheus.enabled does nothing",
            "add telemetry.metrics.enabled=true",
        ),
        (
            {"otlp": {"enabled": True}},
            "telemetry.otlp.enabled does nothing",
            "add telemetry.metrics.enabled=true or telemetry.traces.enabled=true",
        ),
        (
            {"otlp": COLLECTOR},
            "telemetry.otlp.endpoint does nothing",
            "add telemetry.metrics.enabled=true or telemetry.traces.enabled=true",
        ),
        (
            {"metrics": {"sample_interval_s": 0.1}, "event_loop_task_count": True},
            "telemetry.metrics.sample_interval_s and telemetry.event_loop_task_count do nothing",
            "add telemetry.metrics.enabled=true",
        ),
        (
            {"traces": {"sample_ratio": 0.5}, **ON},
            "telemetry.traces.sample_ratio does nothing",
            "add telemetry.traces.enabled=true",
        ),
        (
            {"otlp": {"protocol": "grpc"}, **ON},
            "telemetry.otlp.protocol does nothing",
            "add telemetry.otlp.endpoint=URL",
        ),
    ],
)
def test_a_setting_that_does_nothing_is_named_with_the_switch_it_waits_for(
    section: dict[str, Any], keys: str, mend: str
) -> None:
    [line] = idle_settings(telemetry_options(section))

    assert line.startswith(keys)
    assert line.endswith(mend)


@pytest.mark.parametrize(
    "section",
    [
        {},
        ON,
        {"metrics": {"enabled": False}, "prometheus": {"enabled": True}, "otlp": COLLECTOR},
        {"prometheus": {"enabled": False}, "traces": {"enabled": False}},
        {**ON, "otlp": COLLECTOR, "prometheus": {"enabled": True}},
        {**ON, "otlp": {"enabled": False, **COLLECTOR}},
        {"traces": {"enabled": True, "sample_ratio": 0.5}, "otlp": {"protocol": "grpc"}},
    ],
)
def test_what_is_used_or_off_in_so_many_words_is_not_worth_a_line(section: dict[str, Any]) -> None:
    assert idle_settings(telemetry_options(section)) == []


TRACED = {"traces": {"enabled": True}}
NAMED = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    ("section", "metrics", "traces"),
    [
        ({}, False, False),
        ({"otlp": {"protocol": "http"}}, False, False),
        ({"otlp": {"enabled": False}}, False, False),
        ({"otlp": {"enabled": False, **COLLECTOR}}, False, False),
        ({"otlp": {"enabled": True}}, True, True),
        ({"otlp": COLLECTOR}, True, True),
    ],
    ids=["nothing", "protocol", "off", "off-with-endpoint", "on", "endpoint"],
)
@pytest.mark.parametrize("none", ["none", "None "])
def test_no_exporter_by_variable_holds_unless_the_configuration_asks_for_a_collector(
    monkeypatch: pytest.MonkeyPatch,
    section: dict[str, Any],
    metrics: bool,
    traces: bool,
    none: str,
) -> None:
    monkeypatch.setenv(NAMED, "http://c:4318")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", none)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", none)

    options = telemetry_options({**ON, **TRACED, **section})

    assert (options.uses_otlp, options.exports_traces) == (metrics, traces)
    assert options.serves_prometheus is not metrics


@pytest.mark.parametrize(
    ("variable", "metrics", "traces"),
    [("OTEL_METRICS_EXPORTER", False, True), ("OTEL_TRACES_EXPORTER", True, False)],
)
def test_no_exporter_by_variable_is_for_one_signal(
    monkeypatch: pytest.MonkeyPatch, variable: str, metrics: bool, traces: bool
) -> None:
    monkeypatch.setenv(NAMED, "http://c:4318")
    monkeypatch.setenv(variable, "none")

    options = telemetry_options({**ON, **TRACED})

    assert (options.uses_otlp, options.exports_traces) == (metrics, traces)


def test_an_exporter_of_another_name_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")

    assert telemetry_options(TRACED).exports_traces


def test_where_nothing_is_left_to_export_telemetry_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")

    assert not telemetry_options(TRACED).on


def test_an_endpoint_of_a_signal_without_exporter_is_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(NAMED, "c:4318")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")

    assert not telemetry_options({**ON, **TRACED}).uses_otlp


NO_METRICS, NO_TRACES = "OTEL_METRICS_EXPORTER=none", "OTEL_TRACES_EXPORTER=none"


@pytest.mark.parametrize(
    ("section", "lines"),
    [
        (ON, []),
        (TRACED, [f"telemetry.traces.enabled does nothing: the environment says {NO_TRACES}"]),
        (
            {"traces": {"enabled": True, "sample_ratio": 0.5}, **ON},
            [
                "telemetry.traces.enabled and telemetry.traces.sample_ratio do nothing: "
                f"the environment says {NO_TRACES}"
            ],
        ),
        (
            {**ON, "otlp": {"protocol": "grpc"}},
            [f"telemetry.otlp.protocol does nothing: the environment says {NO_METRICS}"],
        ),
        (
            {**ON, **TRACED, "otlp": {"protocol": "grpc"}},
            [
                f"telemetry.traces.enabled does nothing: the environment says {NO_TRACES}",
                "telemetry.otlp.protocol does nothing: "
                f"the environment says {NO_METRICS} and {NO_TRACES}",
            ],
        ),
        ({**ON, **TRACED, "otlp": COLLECTOR}, []),
        ({"traces": {"enabled": False, "sample_ratio": 0.5}}, []),
        ({"metrics": {"enabled": False}, "otlp": {"protocol": "grpc"}}, []),
    ],
)
def test_a_setting_that_does_nothing_by_a_standard_variable_is_named_with_it(
    monkeypatch: pytest.MonkeyPatch, section: dict[str, Any], lines: list[str]
) -> None:
    for said in (NO_METRICS, NO_TRACES):
        monkeypatch.setenv(*said.split("="))
    monkeypatch.setenv(NAMED, "http://c:4318")

    named = idle_settings(telemetry_options(section))

    mend = "; add telemetry.otlp.enabled=true, or unset that"
    assert named == [f"{line}{mend}" for line in lines]


def test_the_standard_switch_that_turns_it_off_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")

    [line] = idle_settings(telemetry_options(ON))

    assert "OTEL_SDK_DISABLED" in line


def test_the_standard_switch_turns_everything_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")

    assert not telemetry_options({**ON, "traces": {"enabled": True}}).on


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"metrics": {"enabled": "perhaps"}}, "telemetry.metrics.enabled"),
        ({"metrics": {"sample_interval_s": 0}}, "telemetry.metrics.sample_interval_s"),
        ({"metrics": {"sample_interval_s": INFINITE}}, "telemetry.metrics.sample_interval_s"),
        ({"metrics": {"sample_interval_s": 1e12}}, "telemetry.metrics.sample_interval_s"),
        ({"metrics": {"export_interval_s": INFINITE}}, "telemetry.metrics.export_interval_s"),
        ({"metrics": {"export_interval_s": 1e12}}, "telemetry.metrics.export_interval_s"),
        ({"traces": {"sample_ratio": 2}}, "telemetry.traces.sample_ratio"),
        ({"otlp": {"protocol": "carrier-pigeon"}}, "telemetry.otlp.protocol"),
        ({"metrcs": {}}, "telemetry.metrcs"),
        ({"metrics": True}, "telemetry.metrics"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_setting_is_named_by_its_key(section: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigMistake, match=key):
        telemetry_options(section)


def test_the_configuration_schema_has_the_same_keys_and_defaults() -> None:
    ours = TelemetryOptions().model_dump()
    theirs = asdict(schema.TelemetrySettings())

    # Left out, the protocol follows from the environment or the port.
    ours["otlp"].pop("protocol")
    theirs["otlp"].pop("protocol")
    assert ours == theirs


@pytest.mark.parametrize(
    ("options", "environment", "signal", "expected"),
    [
        ({"endpoint": "http://c:4318"}, {}, "metrics", ("http", "http://c:4318/v1/metrics")),
        ({"endpoint": "http://c:4318/"}, {}, "traces", ("http", "http://c:4318/v1/traces")),
        (
            {"endpoint": "http://c:4318/v1/metrics"},
            {},
            "traces",
            ("http", "http://c:4318/v1/traces"),
        ),
        ({"endpoint": "http://c:4317"}, {}, "metrics", ("grpc", "http://c:4317")),
        ({"endpoint": "c:4317"}, {}, "metrics", ("grpc", "c:4317")),
        ({"endpoint": "http://c:4317", "protocol": "http"}, {}, "metrics",
         ("http", "http://c:4317/v1/metrics")),
        ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://e:4318"}, "metrics", ("http", None)),
        ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://e:4317"}, "metrics", ("grpc", None)),
        ({}, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://e:4317"}, "traces", ("grpc", None)),
        ({}, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "metrics", ("grpc", None)),
        ({"endpoint": "http://c:9000"}, {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, "traces",
         ("grpc", "http://c:9000")),
    ],
)  # fmt: skip
def test_a_collector_is_found_from_the_settings_then_the_environment(
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    environment: dict[str, str],
    signal: Any,
    expected: tuple[str, str | None],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    target = OtlpTarget.of(OtlpOptions(**options), signal)

    assert (target.protocol, target.endpoint) == expected


def test_a_collector_is_shown_without_its_password_and_query() -> None:
    options = OtlpOptions(endpoint="https://user:hunter2@c.example/otlp?key=s3cret")

    shown = OtlpTarget.of(options, "metrics").shown

    assert shown == "https://c.example/otlp"
