"""Export to a real OTLP receiver, over HTTP and gRPC; and to one that is not there."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import sleep
from typing import Any

import pytest

from nemo_gym.telemetry.export import FLUSH_S
from nemo_gym.telemetry.exporting import exporting
from nemo_gym.telemetry.model_calls import count_tokens, model_call_started
from nemo_gym.telemetry.observer import driver_metrics, observe_event_loop, request_counts
from nemo_gym.telemetry.providers import start_telemetry
from nemo_gym.telemetry.tracing import span
from nemo_gym.telemetry.work import capture_committed, rollout_finished, tool_call_ended
from support.collector import Received, grpc_collector, http_collector

Collector = Callable[[], AbstractContextManager[Received]]
BOTH = pytest.mark.parametrize(
    ("collector", "protocol"),
    [(http_collector, "http"), (grpc_collector, "grpc")],
    ids=["http", "grpc"],
)


@pytest.fixture(autouse=True)
def _no_otel_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    import os  # noqa: PLC0415

    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


def settings(endpoint: str, protocol: str, **more: Any) -> dict[str, Any]:
    return {
        "metrics": {"enabled": True, "sample_interval_s": 0.01},
        "otlp": {"endpoint": endpoint, "protocol": protocol},
        **more,
    }


async def work() -> None:
    """Do a little of everything that is measured."""
    async with observe_event_loop("server"):
        state, counts = driver_metrics(), request_counts()
        assert state is not None
        assert counts is not None
        state.driver.offered += 2
        counts.count_response(200)
        counts.count_response(200)
        with span("rollout", root=True):
            call = model_call_started("openai", "gpt-5", stream=True)
            call.first_chunk()
            call.ended()
        count_tokens("openai", "gpt-5", tokens_in=100, tokens_out=7)
        capture_committed(3, 1000, 0.002)
        rollout_finished("rewarded", 2.0)
        tool_call_ended("send_mail", 0.5)
        await asyncio.sleep(0.05)


@BOTH
async def test_what_was_measured_arrives_at_the_collector(
    collector: Collector, protocol: str
) -> None:
    with collector() as received:
        handle = start_telemetry(
            settings(received.endpoint, protocol), service_name="nemo_gym.cell", instance="cell-0"
        )
        await work()
        handle.shutdown()

    [lag] = received.points("gym.event_loop.lag_ms")
    [duration] = received.points("gen_ai.client.operation.duration")
    [responses] = received.points("gym.server.responses_total")
    assert {"process.cpu.time", "gym.gc.count", "gym.driver.rollouts.offered_total"} <= (
        received.names()
    )
    assert lag.count >= 1
    assert (duration.count, next(iter(duration.explicit_bounds))) == (1, 0.01)
    assert responses.as_int == 2
    assert received.resource()["service.instance.id"] == handle.instance_id


@BOTH
async def test_the_spans_of_a_rollout_arrive_as_one_trace(
    collector: Collector, protocol: str
) -> None:
    with collector() as received:
        handle = start_telemetry(
            settings(received.endpoint, protocol, traces={"enabled": True}),
            service_name="nemo_gym.cell",
            instance="cell-0",
        )
        await work()
        handle.shutdown()

    spans = {one.name: one for one in received.spans()}
    assert set(spans) == {"rollout", "chat gpt-5"}
    assert spans["chat gpt-5"].parent_span_id == spans["rollout"].span_id
    assert spans["chat gpt-5"].trace_id == spans["rollout"].trace_id
    assert spans["rollout"].end_time_unix_nano >= spans["chat gpt-5"].end_time_unix_nano


async def test_the_standard_variables_say_where_and_with_which_headers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with http_collector() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=evals")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "nightly")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        handle = start_telemetry(
            {"metrics": {"enabled": True}}, service_name="nemo_gym.cell", instance="cell-0"
        )
        came = await asyncio.to_thread(received.came.wait, 10)
        handle.shutdown()

    assert came
    assert received.resource()["service.name"] == "nightly"
    assert received.headers[0]["x-team"] == "evals"
    assert received.headers[0]["content-encoding"] == "gzip"


async def test_with_delta_temporality_each_export_holds_only_what_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    with http_collector() as received:
        handle = start_telemetry(
            settings(received.endpoint, "http"), service_name="s", instance="i"
        )
        await work()
        first = received.points("gen_ai.execute_tool.duration")[0].count
        tool_call_ended("send_mail", 0.1)
        tool_call_ended("send_mail", 0.1)
        handle.shutdown()

    assert first == 1
    assert received.points("gen_ai.execute_tool.duration")[0].count == 2


async def test_it_starts_again_under_another_identity_after_it_was_stopped() -> None:
    identities = []
    for _ in range(2):
        with http_collector() as received:
            handle = start_telemetry(
                settings(received.endpoint, "http"), service_name="s", instance="cell-0"
            )
            await work()
            handle.shutdown()
            handle.shutdown()
            identities.append(received.resource()["service.instance.id"])
            [responses] = received.points("gym.server.responses_total")
            assert responses.as_int == 2

    assert len(set(identities)) == 2


async def test_what_an_observer_read_at_its_end_arrives_though_an_export_hung_just_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    with http_collector() as received:
        received.may_answer.clear()
        handle = start_telemetry(
            settings(received.endpoint, "http"), service_name="s", instance="cell-0"
        )
        async with observe_event_loop("server"):
            assert await asyncio.to_thread(received.came.wait, 10)
            counts = request_counts()
            assert counts is not None
            counts.count_response(200)
        received.may_answer.set()
        handle.shutdown()

    [responses] = received.points("gym.server.responses_total")
    assert responses.as_int == 1


async def test_what_an_observer_read_at_its_end_arrives_though_reading_took_long() -> None:
    def slow(_options: object) -> list[Any]:
        sleep(2 * FLUSH_S)  # what is slow here is the reading itself; nothing is waited for
        return []

    with http_collector() as received:
        handle = start_telemetry(
            settings(received.endpoint, "http"), service_name="s", instance="cell-0"
        )
        meters = exporting()
        assert meters is not None
        meters.meter.create_observable_gauge("slow", callbacks=[slow])
        async with observe_event_loop("server"):
            counts = request_counts()
            assert counts is not None
            counts.count_response(200)
        handle.shutdown()

    [responses] = received.points("gym.server.responses_total")
    assert responses.as_int == 1


async def test_a_second_start_while_it_runs_changes_nothing() -> None:
    with http_collector() as received:
        first = start_telemetry(settings(received.endpoint, "http"), service_name="s", instance="a")
        second = start_telemetry(
            settings(received.endpoint, "http"), service_name="s", instance="b"
        )
        second.shutdown()
        await work()
        first.shutdown()

    assert second.instance_id is None
    assert received.points("gym.server.responses_total") != []


PROGRAM = """
import asyncio, logging, sys, time
logging.basicConfig(format="%(levelname)s %(message)s")
from nemo_gym.telemetry.providers import start_telemetry
from nemo_gym.telemetry.observer import observe_event_loop, request_counts
from nemo_gym.telemetry.tracing import span
endpoint, protocol = sys.argv[1:3]
handle = start_telemetry(
    {"metrics": {"enabled": True, "export_interval_s": 0.1}, "traces": {"enabled": True},
     "otlp": {"endpoint": endpoint, "protocol": protocol}},
    service_name="s", instance="i")
async def main():
    async with observe_event_loop("server"):
        begun = time.perf_counter()
        for _ in range(2000):
            request_counts().count_response(200)
            with span("rollout", root=True):
                pass
            await asyncio.sleep(0)
        print("worked", time.perf_counter() - begun)
        await asyncio.sleep(float(sys.argv[3]))
        global stopping
        stopping = time.perf_counter()
asyncio.run(main())
begun = time.perf_counter()
handle.shutdown()
print("ended", time.perf_counter() - begun)
print("whole", time.perf_counter() - stopping)
"""


def run_against(endpoint: str, protocol: str, lasting_s: float) -> tuple[dict[str, float], str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, endpoint, protocol, str(lasting_s)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    figures = {k: float(v) for k, v in (line.split() for line in done.stdout.splitlines())}
    return figures, done.stderr


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("silent", [False, True], ids=["refuses", "never-answers"])
@pytest.mark.parametrize("lasting_s", [0.0, 1.5], ids=["short", "longer"])
def test_a_collector_that_is_not_there_costs_one_warning_and_no_time(
    protocol: str, silent: bool, lasting_s: float
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if silent:
            listener.listen(64)
        port = listener.getsockname()[1]
        figures, said = run_against(f"http://127.0.0.1:{port}", protocol, lasting_s)

    warnings = [line for line in said.splitlines() if line.startswith("WARNING")]
    # An exporter left to itself tries for 10 s, for each signal. That the bounds handed to it add
    # up to less than two seconds is a matter of tests/unit/test_telemetry_end.py; a machine that
    # others use may take longer to get through them.
    assert figures["worked"] < 6.0
    assert figures["whole"] < 6.0
    assert all(line.endswith(" says so only this once") for line in warnings)
    assert all(("it does not answer" if silent else "refused") in line for line in warnings)
    assert sorted(line.partition("at http")[0] for line in warnings) == [
        "WARNING telemetry does not reach the collector of metrics ",
        "WARNING telemetry does not reach the collector of traces ",
    ]
    assert "Traceback" not in said


def test_a_forked_child_sends_nothing_under_its_parents_identity() -> None:
    program = """
import os, sys
from nemo_gym.telemetry.providers import start_telemetry
from nemo_gym.telemetry.work import rollout_finished
settings = {"metrics": {"enabled": True}, "otlp": {"endpoint": sys.argv[1]}}
handle = start_telemetry(settings, service_name="s", instance="parent")
rollout_finished("rewarded", 1.0)
pid = os.fork()
if pid == 0:
    handle.shutdown()
    own = start_telemetry(settings, service_name="s", instance="child")
    rollout_finished("timeout", 1.0)
    own.shutdown()
    os._exit(0)
os.waitpid(pid, 0)
handle.shutdown()
"""
    with http_collector() as received:
        subprocess.run([sys.executable, "-c", program, received.endpoint], check=True, timeout=60)

    outcomes = {}
    for request in received.metrics:
        [group] = request.resource_metrics
        resource = {a.key: a.value.string_value for a in group.resource.attributes}
        for scope in group.scope_metrics:
            for metric in scope.metrics:
                if metric.name == "gym.driver.rollouts.finished_total":
                    outcomes[resource["nemo.gym.process"]] = [
                        point.attributes[0].value.string_value for point in metric.sum.data_points
                    ]
    assert outcomes == {"parent": ["rewarded"], "child": ["timeout"]}


def test_spans_of_a_users_library_are_sent_too_under_ours() -> None:
    program = """
import sys
from opentelemetry import trace
from nemo_gym.telemetry.providers import start_telemetry
from nemo_gym.telemetry.tracing import span
users = trace.get_tracer("library")
settings = {"traces": {"enabled": True}, "otlp": {"endpoint": sys.argv[1]}}
for _ in range(2):
    handle = start_telemetry(settings, service_name="s", instance="i")
    with span("verify", root=True), users.start_as_current_span("sql"):
        pass
    handle.shutdown()
with users.start_as_current_span("afterwards"):
    pass
"""
    with http_collector() as received:
        subprocess.run([sys.executable, "-c", program, received.endpoint], check=True, timeout=60)

    spans = received.spans()
    ours = {one.span_id: one for one in spans if one.name == "verify"}
    theirs = [one for one in spans if one.name == "sql"]
    assert (len(ours), len(theirs), len(spans)) == (2, 2, 4)
    assert all(ours[one.parent_span_id].trace_id == one.trace_id for one in theirs)


def test_missing_packages_are_named_with_the_command_that_installs_them() -> None:
    program = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("opentelemetry.sdk"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from nemo_gym.errors import UserMistake
from nemo_gym.telemetry.providers import start_telemetry
start_telemetry({}, service_name="s", instance="i").shutdown()
try:
    start_telemetry({"metrics": {"enabled": True}}, service_name="s", instance="i")
except UserMistake as mistake:
    print(mistake)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )

    assert "pip install opentelemetry-sdk" in done.stdout
    assert "opentelemetry.sdk" in done.stdout
