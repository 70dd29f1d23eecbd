"""Standard variables with values that nobody can read, each in a process of its own or in a run."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from opentelemetry import environment_variables as of_api
from opentelemetry.sdk import environment_variables as of_sdk

from nemo_gym.telemetry.providers import start_telemetry
from support.collector import Received, grpc_collector, http_collector
from support.eval_command import environ_of
from support.eval_servers import COUNTER, provider_process
from support.gym_command import Ended, gym

COLLECTORS = {"http": http_collector, "grpc": grpc_collector}
EXPORT = """
import sys
from nemo_gym.telemetry.providers import start_telemetry
from nemo_gym.telemetry.tracing import span
from nemo_gym.telemetry.work import rollout_finished
settings = {
    "metrics": {"enabled": True},
    "traces": {"enabled": True},
    "otlp": {"endpoint": sys.argv[1], "protocol": sys.argv[2]},
}
handle = start_telemetry(settings, service_name="nemo_gym.cell", instance="cell-0")
rollout_finished("rewarded", 2.0)
with span("rollout", root=True):
    from opentelemetry import trace
    with trace.get_tracer("library").start_as_current_span("of a library") as inner:
        inner.set_attribute("a", "b")
        inner.add_event("c")
handle.shutdown()
"""
ANSWER = """
import nemo_gym
from fastapi import FastAPI
from fastapi.testclient import TestClient
app = FastAPI()
app.get("/")(lambda: "answered")
print(TestClient(app).get("/").json())
"""


def _without_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}


def _python(program: str, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """Return code, output and error output of a program under these variables."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments],
        env={**_without_variables(), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


def _known() -> list[str]:
    """Return every variable that the installed API and SDK have a name for."""
    members = [*inspect.getmembers(of_api), *inspect.getmembers(of_sdk)]
    named = {value for _, value in members if isinstance(value, str)}
    return sorted(name for name in named if name.startswith("OTEL_"))


@pytest.mark.parametrize("value", ["abc", "-1", "inf", "1e30", "", "a=b,=,c", ","])
@pytest.mark.parametrize("protocol", COLLECTORS)
def test_every_variable_with_a_value_that_fits_none_leaves_metrics_and_spans(
    protocol: str, value: str
) -> None:
    with COLLECTORS[protocol]() as received:
        variables = dict.fromkeys(_known(), value)
        code, out, err = _python(EXPORT, received.endpoint, protocol, **variables)

    assert (code, out, err) == (0, "", "")
    assert "gym.driver.rollouts.finished_total" in received.names()
    assert {span.name for span in received.spans()} == {"rollout", "of a library"}


@pytest.mark.parametrize("protocol", COLLECTORS)
@pytest.mark.parametrize(
    ("variables", "compressed"),
    [
        ({"": "gzip"}, True),
        ({"": "GZIP "}, True),
        ({"": "none"}, False),
        ({"METRICS_": "none", "TRACES_": "none", "": "gzip"}, False),
        ({"METRICS_": "brotli", "TRACES_": "", "": "gzip"}, True),
        ({"METRICS_": "none", "TRACES_": "none", "": "brotli"}, False),
    ],
    ids=["gzip", "any-case", "none", "none-of-its-own", "stands-in", "not-looked-at"],
)
def test_compression_is_that_of_the_signal_else_that_of_all(
    protocol: str, variables: dict[str, str], compressed: bool
) -> None:
    named = {f"OTEL_EXPORTER_OTLP_{signal}COMPRESSION": v for signal, v in variables.items()}
    with COLLECTORS[protocol]() as received:
        code, _, err = _python(EXPORT, received.endpoint, protocol, **named)

    assert (code, err) == (0, "")
    assert received.metrics
    assert received.traces
    if protocol == "http":
        used = {headers.get("content-encoding") for headers in received.headers}
        assert used == {"gzip" if compressed else None}


def test_tls_that_a_variable_without_scheme_asks_for_is_told_and_nothing_else() -> None:
    variable = "OTEL_EXPORTER_OTLP_ENDPOINT"
    with grpc_collector() as received:
        bare = received.endpoint.removeprefix("http://")
        code, out, err = _python(EXPORT, "", "grpc", **{variable: bare})

    lines = sorted(err.splitlines())
    assert (code, out, len(lines)) == (0, "", 2), err
    for signal, line in zip(("metrics", "traces"), lines, strict=True):
        assert line.startswith(
            f"telemetry does not reach the collector of {signal} at {bare} over TLS, since "
            f"{variable} does not begin with http:// and OTEL_EXPORTER_OTLP_INSECURE is not true "
            "(TLS handshake failed: wrong version number)"
        )


def test_a_variable_without_scheme_is_asked_without_tls_where_another_says_so() -> None:
    with grpc_collector() as received:
        bare = received.endpoint.removeprefix("http://")
        variables = {"ENDPOINT": bare, "INSECURE": "true"}
        named = {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in variables.items()}
        code, _, err = _python(EXPORT, "", "grpc", **named)

    assert (code, err) == (0, "")
    assert received.metrics
    assert received.traces


def test_what_grpc_is_to_log_stays_as_it_was_for_others() -> None:
    program = f"{EXPORT}\nimport os; print(os.environ.get('GRPC_VERBOSITY'))"
    with grpc_collector() as received:
        told = [
            _python(program, received.endpoint, "grpc", **said)[1]
            for said in ({}, {"GRPC_VERBOSITY": "ERROR"})
        ]

    assert told == ["None\n", "ERROR\n"]


def test_an_exporter_that_cannot_be_made_is_told_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = list[str]()
    settings = {
        "metrics": {"enabled": True},
        "traces": {"enabled": True},
        "otlp": {"endpoint": "dns://[c/host", "protocol": "grpc"},
    }

    handle = start_telemetry(
        settings, service_name="nemo_gym.cell", instance="cell-0", warned=told.append
    )
    text = handle.exposition()
    handle.shutdown()

    assert len(told) == 1
    assert told[0].startswith("nothing goes to the collector of metrics at dns://[c/host")
    assert "the collector of traces" in caplog.text
    assert "target_info" in text


@pytest.mark.parametrize(
    "variable",
    [
        "OTEL_PROPAGATORS",
        "OTEL_PYTHON_CONTEXT",
        "OTEL_PYTHON_TRACER_PROVIDER",
        "OTEL_PYTHON_METER_PROVIDER",
    ],
)
def test_what_the_api_reads_neither_ends_a_server_nor_shows_while_telemetry_is_off(
    variable: str,
) -> None:
    assert _python(ANSWER, **{variable: "b3"}) == (0, "answered\n", "")


def test_a_variable_that_others_may_read_stays_for_them() -> None:
    program = "import nemo_gym, os; print(os.environ['OTEL_PROPAGATORS'])"

    assert _python(program, OTEL_PROPAGATORS="b3,tracecontext") == (0, "b3,tracecontext\n", "")


def _run(folder: Path, origin: str, *more: str, **variables: str) -> Ended:
    row = {"responses_create_params": {"input": "count"}}
    (folder / "rows.jsonl").write_text(f"{json.dumps(row)}\n")
    return gym(
        *("eval", "run", "--resources-server", "counter", "--search-dir", COUNTER),
        *("--model-type", "openai_model", "--model", "m", "--model-url", origin),
        *("--model-api-key", "k", "--agent", "counter_agent", "--workers", "2"),
        *("--input", "rows.jsonl", "--output", "x.jsonl", *more),
        cwd=folder,
        environ={**environ_of(folder), **variables},
    )


WRONG = {
    "OTEL_EXPORTER_OTLP_COMPRESSION": "brotli",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "abc",
    "OTEL_PROPAGATORS": "b3",
    "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "abc",
    "OTEL_METRIC_EXPORT_INTERVAL": "inf",
}


@pytest.mark.parametrize("collector", COLLECTORS.values(), ids=COLLECTORS)
def test_a_run_names_each_variable_that_it_cannot_read_once_and_goes_on(
    tmp_path: Path, collector: Callable[[], AbstractContextManager[Received]]
) -> None:
    with provider_process(answer={"text": "done"}) as origin, collector() as received:
        on = ("++telemetry.metrics.enabled=true", "++telemetry.traces.enabled=true")
        protocol = "grpc" if collector is grpc_collector else "http"
        to = f"++telemetry.otlp.endpoint={received.endpoint}"
        over = f"++telemetry.otlp.protocol={protocol}"
        ended = _run(tmp_path, origin, *on, to, over, **WRONG)

    assert ended.code in {0, 1}, ended.err
    assert "Traceback" not in ended.err
    for variable, value in WRONG.items():
        assert ended.err.count(f"warning: {variable}={value!r} cannot be read") == 1
    assert received.metrics
    assert received.traces


def test_a_run_without_telemetry_says_nothing_of_variables(tmp_path: Path) -> None:
    with provider_process(answer={"text": "done"}) as origin:
        ended = _run(tmp_path, origin, **WRONG)

    assert ended.code in {0, 1}, ended.err
    assert "OTEL_" not in ended.err
    assert "Traceback" not in ended.err


def test_validate_names_a_variable_that_cannot_be_read(tmp_path: Path) -> None:
    ended = gym(
        *("env", "validate", "--resources-server", "counter", "--search-dir", COUNTER),
        *("--model-type", "openai_model", "--model", "m", "--model-url", "http://127.0.0.1:9"),
        *("--model-api-key", "k", "telemetry.metrics.enabled=true", "--json"),
        cwd=tmp_path,
        environ={**environ_of(tmp_path), "OTEL_RESOURCE_ATTRIBUTES": "a=b,c"},
    )

    told = json.loads(ended.out)
    assert (ended.code, told["ok"]) == (0, True)
    assert [each["what"] for each in told["warnings"]] == [
        "OTEL_RESOURCE_ATTRIBUTES='a=b,c' cannot be read as a whole: it has to be KEY=VALUE, "
        "with commas between several; the rest of it is used instead"
    ]
