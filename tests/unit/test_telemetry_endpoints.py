"""Endpoints of collectors: what can be none is refused before anything starts, and named safely."""

import os
from typing import Any

import pytest

from nemo_gym.errors import ConfigMistake
from nemo_gym.telemetry.endpoints import Endpoint
from nemo_gym.telemetry.otlp import OtlpTarget
from nemo_gym.telemetry.providers import start_telemetry
from nemo_gym.telemetry.settings import OtlpOptions, telemetry_options

METRICS = {"metrics": {"enabled": True}}
TRACES = {"traces": {"enabled": True}}
NO_SCHEME = "localhost:4318"


@pytest.fixture(autouse=True)
def _no_otel_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


def refused(section: dict[str, Any]) -> ConfigMistake:
    with pytest.raises(ConfigMistake) as caught:
        telemetry_options(section)
    return caught.value


@pytest.mark.parametrize("signal", [METRICS, TRACES], ids=["metrics", "traces"])
def test_an_endpoint_without_a_scheme_over_http_is_refused_at_the_start(
    signal: dict[str, Any],
) -> None:
    with pytest.raises(ConfigMistake) as caught:
        start_telemetry({**signal, "otlp": {"endpoint": NO_SCHEME}}, service_name="s", instance="i")

    assert str(caught.value) == (
        "'localhost:4318' does not begin with http:// or https://, so no collector can be reached "
        "there over HTTP\n"
        "  where: telemetry.otlp.endpoint\n"
        "  mend:  write http://localhost:4318"
    )


@pytest.mark.parametrize(
    ("endpoint", "said", "mend"),
    [
        ("c", "'c' does not begin with http", "write http://c"),
        ("c:4318/otlp", "'c:4318/otlp' does not begin", "write http://c:4318/otlp"),
        ("//c:4318", "'//c:4318' does not begin", "write http://c:4318"),
        ("http:/c:4318", "'http:/c:4318' does not begin", "write http://c:4318"),
        ("https//c:4318", "'https//c:4318' does not begin", "write https://c:4318"),
        ("ftp://c:4318", "'ftp://c:4318' does not begin", "write http://c:4318"),
        (":4318", "':4318' does not begin", "write it as http://HOST:PORT"),
        ("http://", "'http://' names no host", "write it as http://HOST:PORT"),
        ("http://:4318", "'http://:4318' names no host", "write it as http://HOST:PORT"),
        ("http://[::1", "'http://[::1' names no host that", "write it as http://HOST:PORT"),
        ("http://c:port", "'http://c:port' has a port", "write it as http://HOST:PORT"),
        ("http://c:65536", "'http://c:65536' has a port", "write it as http://HOST:PORT"),
        (" http://c:4318\n", "holds blanks", "write http://c:4318"),
        ("http://c d:4318", "holds blanks", "write it as http://HOST:PORT"),
    ],
)
def test_an_endpoint_that_can_be_none_is_refused(endpoint: str, said: str, mend: str) -> None:
    mistake = refused({**METRICS, "otlp": {"endpoint": endpoint}})

    assert said in mistake.what
    assert (mistake.where, mistake.mend) == ("telemetry.otlp.endpoint", mend)


@pytest.mark.parametrize(
    "endpoint",
    [
        "user:hunter2@c:4318?key=hunter2",
        "ftp://user:hunter2@c:4318#hunter2",
        "http://user:hunter2@:4318?key=hunter2",
        "http://user:hunter2/x@c:4318",
        "http://user:a?hunter2@c:99999",
        "c:4318?key=a@hunter2",
        "http://user:a@hunter2@c:port",
    ],
)
def test_a_refusal_repeats_no_user_password_or_query(endpoint: str) -> None:
    mistake = refused({**METRICS, "otlp": {"endpoint": endpoint}})

    assert "hunter2" not in str(mistake)
    assert "user" not in str(mistake)


@pytest.mark.parametrize(
    "endpoint", ["c:4318", "c", "dns:///c:4317", "unix:/run/collector", "http://c:9000"]
)
def test_over_grpc_an_endpoint_needs_no_scheme(endpoint: str) -> None:
    section = {**METRICS, **TRACES, "otlp": {"endpoint": endpoint, "protocol": "grpc"}}

    assert telemetry_options(section).otlp.endpoint == endpoint


def test_grpc_by_its_port_needs_no_scheme_either() -> None:
    assert telemetry_options({**METRICS, "otlp": {"endpoint": "c:4317"}}).uses_otlp


def test_over_grpc_a_url_needs_a_host_all_the_same() -> None:
    assert "over gRPC" in refused({**METRICS, "otlp": {"endpoint": "http://:4317"}}).what


@pytest.mark.parametrize(
    ("signal", "variable"),
    [
        (METRICS, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        (METRICS, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
        (TRACES, "OTEL_EXPORTER_OTLP_ENDPOINT"),
        (TRACES, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
    ],
)
def test_a_standard_variable_that_names_no_collector_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch, signal: dict[str, Any], variable: str
) -> None:
    monkeypatch.setenv(variable, NO_SCHEME)

    mistake = refused(signal)

    assert mistake.where == f"the environment variable {variable}"
    assert mistake.mend == "write http://localhost:4318"


@pytest.mark.parametrize(
    "section",
    [
        {},
        {**METRICS, "otlp": {"enabled": False}},
        {**METRICS, "otlp": {"endpoint": "http://c:4318"}},
        {**METRICS, "otlp": {"protocol": "grpc"}},
        {"metrics": {"enabled": False}, "otlp": {"endpoint": NO_SCHEME}},
    ],
    ids=["off", "not-pushed", "the-configuration-wins", "grpc", "off-in-so-many-words"],
)
def test_an_endpoint_that_nothing_is_sent_to_is_not_looked_at(
    monkeypatch: pytest.MonkeyPatch, section: dict[str, Any]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", NO_SCHEME)

    telemetry_options(section)


def test_the_other_signals_variable_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://c:4318")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", NO_SCHEME)

    assert telemetry_options(METRICS).uses_otlp


def test_an_empty_endpoint_names_no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")

    options = OtlpOptions(enabled=True, endpoint="")

    assert OtlpTarget.of(options, "metrics").endpoint is None
    assert Endpoint.of("", None, "metrics").shown == "http://localhost:4318"


EVERY, OWN = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
INSECURE = "OTEL_EXPORTER_OTLP_INSECURE"
INSECURE_OWN = "OTEL_EXPORTER_OTLP_TRACES_INSECURE"


@pytest.mark.parametrize(
    ("variables", "named_by"),
    [
        ({EVERY: "c:4317"}, EVERY),
        ({EVERY: "dns:///c:4317"}, EVERY),
        ({EVERY: "http://d:4317", OWN: "c:4317"}, OWN),
        ({EVERY: "c:4317", INSECURE: "false"}, EVERY),
        ({EVERY: "c:4317", INSECURE: "perhaps"}, EVERY),
        ({EVERY: "c:4317", INSECURE: "true", INSECURE_OWN: "false"}, EVERY),
    ],
)
def test_tls_that_nobody_wrote_is_told_with_the_name_of_the_collector(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], named_by: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    shown = OtlpTarget.of(OtlpOptions(protocol="grpc"), "traces").shown

    assert shown.endswith(
        f"c:4317 over TLS, since {named_by} does not begin with http:// and {INSECURE} is not true"
    )


@pytest.mark.parametrize(
    ("options", "variables", "shown"),
    [
        ({"protocol": "grpc"}, {EVERY: "https://c:4317"}, "https://c:4317"),
        ({"protocol": "grpc"}, {EVERY: "HTTP://c:4317"}, "HTTP://c:4317"),
        ({"protocol": "grpc"}, {EVERY: "c:4317", INSECURE: "TRUE"}, "c:4317"),
        ({"protocol": "grpc"}, {EVERY: "c:4317", INSECURE_OWN: "true"}, "c:4317"),
        ({"protocol": "grpc"}, {}, "http://localhost:4317"),
        ({"protocol": "grpc", "endpoint": "c:4317"}, {EVERY: "d:4317"}, "c:4317"),
    ],
)
def test_a_collector_asked_as_it_was_written_is_only_named(
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    variables: dict[str, str],
    shown: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert OtlpTarget.of(OtlpOptions(**options), "traces").shown == shown
