"""A real run seen from outside: one trace a rollout whatever the placement, metrics at the head."""

import json
import socket
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from support.collector import Received, http_collector
from support.eval_command import environ_of
from support.eval_servers import COUNTER, env_start, provider_process
from support.gym_command import Ended, gym

ROLLOUTS = 3
PLACEMENTS = {
    "one-cell": [],
    "two-cells": ["--workers", "2"],
    "one-process-each": ["--one-process-each"],
}


def run_counter(folder: Path, origin: str, *more: str) -> Ended:
    """Run three rollouts of the counter environment."""
    row = {"responses_create_params": {"input": "count"}}
    (folder / "rows.jsonl").write_text(f"{json.dumps(row)}\n" * ROLLOUTS)
    return gym(
        *("eval", "run", "--resources-server", "counter", "--search-dir", COUNTER),
        *("--model-type", "openai_model", "--model", "m", "--model-url", origin),
        *("--model-api-key", "k", "--agent", "counter_agent"),
        *("--input", "rows.jsonl", "--output", "x.jsonl", *more),
        cwd=folder,
        environ=environ_of(folder),
    )


def traces_of(received: Received) -> list[list[Any]]:
    """Return the spans of each trace."""
    traces: dict[bytes, list[Any]] = defaultdict(list)
    for span in received.spans():
        traces[span.trace_id].append(span)
    return list(traces.values())


def attribute(span: Any, key: str) -> str | None:
    return next((a.value.string_value for a in span.attributes if a.key == key), None)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_rollout_is_one_trace_across_its_servers(tmp_path: Path, placement: str) -> None:
    with provider_process(answer={"text": "done"}) as origin, http_collector() as received:
        ended = run_counter(
            tmp_path,
            origin,
            "++telemetry.traces.enabled=true",
            f"++telemetry.otlp.endpoint={received.endpoint}",
            *PLACEMENTS[placement],
        )

    assert ended.code in {0, 1}, ended.err
    traces = traces_of(received)
    roots = [span for trace in traces for span in trace if span.name == "gym.rollout"]
    assert len(traces) == len(roots) == ROLLOUTS
    assert len({attribute(root, "nemo.gym.rollout.id") for root in roots}) == ROLLOUTS
    for trace in traces:
        [root] = [span for span in trace if span.name == "gym.rollout"]
        [run] = [span for span in trace if attribute(span, "nemo.gym.server") == "counter_agent"]
        called = [span for span in trace if span.parent_span_id == run.span_id]
        assert run.parent_span_id == root.span_id
        assert Counter((span.name, attribute(span, "nemo.gym.server")) for span in called) == {
            ("POST /seed_session", "counter"): 1,
            ("POST /verify", "counter"): 1,
            ("POST /v1/responses", "policy_model"): 1,
        }
        [model] = [span for span in called if span.name == "POST /v1/responses"]
        [asked] = [span for span in trace if span.name == "chat m"]
        assert asked.parent_span_id == model.span_id
        assert attribute(asked, "gen_ai.provider.name") == "openai"


def test_no_rollout_is_traced_where_none_is_sampled(tmp_path: Path) -> None:
    with provider_process(answer={"text": "done"}) as origin, http_collector() as received:
        run_counter(
            tmp_path,
            origin,
            "++telemetry.traces.enabled=true",
            "++telemetry.traces.sample_ratio=0",
            f"++telemetry.otlp.endpoint={received.endpoint}",
        )

    assert traces_of(received) == []


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_every_process_of_a_run_sends_metrics_under_its_own_identity(
    tmp_path: Path, placement: str
) -> None:
    with provider_process(answer={"text": "done"}) as origin, http_collector() as received:
        ended = run_counter(
            tmp_path,
            origin,
            "++telemetry.metrics.enabled=true",
            f"++telemetry.otlp.endpoint={received.endpoint}",
            *PLACEMENTS[placement],
        )

    assert ended.code in {0, 1}, ended.err
    groups = [group for request in received.metrics for group in request.resource_metrics]
    identities = {
        (resource["nemo.gym.process"], resource["service.instance.id"])
        for group in groups
        for resource in [{a.key: a.value.string_value for a in group.resource.attributes}]
    }
    expected = {"one-cell": 1, "two-cells": 3, "one-process-each": 4}[placement]
    assert len(identities) == len({name for name, _ in identities}) == expected
    assert {"gym.driver.rollouts.offered_total", "gym.server.responses_total"} <= received.names()


def test_calls_to_the_provider_are_measured_with_their_tokens(tmp_path: Path) -> None:
    with provider_process(answer={"text": "done"}) as origin, http_collector() as received:
        run_counter(
            tmp_path,
            origin,
            "++telemetry.metrics.enabled=true",
            f"++telemetry.otlp.endpoint={received.endpoint}",
        )

    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    [duration] = received.points("gen_ai.client.operation.duration")
    tokens = {
        attribute(point, "nemo.gym.token.kind"): point.as_int
        for point in received.points("gym.model.tokens_total")
    }
    assert duration.count == ROLLOUTS == len(rows)
    assert attribute(duration, "gen_ai.request.model") == "m"
    assert tokens["input"] == sum(row["response"]["usage"]["input_tokens"] for row in rows)
    assert tokens["output"] == sum(row["response"]["usage"]["output_tokens"] for row in rows)
    in_flight = {
        attribute(point, "nemo.gym.server") for point in received.points("gym.servers.in_flight")
    }
    assert {"counter", "counter_agent", "policy_model"} <= in_flight


def test_no_metric_names_a_rollout_and_no_secret_is_sent(tmp_path: Path) -> None:
    with provider_process(answer={"text": "done"}) as origin, http_collector() as received:
        run_counter(
            tmp_path,
            origin,
            "++telemetry.metrics.enabled=true",
            "++telemetry.traces.enabled=true",
            f"++telemetry.otlp.endpoint={received.endpoint}",
            "++policy_api_key=planted-s3cret-key",
        )

    metrics = "".join(str(request) for request in received.metrics)
    assert received.metrics
    assert "planted-s3cret-key" not in metrics + "".join(map(str, received.traces))
    for rollout_id in ("0-0", "1-0", "2-0"):
        assert f'string_value: "{rollout_id}"' not in metrics


def test_the_port_of_each_process_is_named_in_its_log_and_the_run_in_its_report(
    tmp_path: Path,
) -> None:
    with provider_process(answer={"text": "done"}) as origin:
        ended = run_counter(tmp_path, origin, "++telemetry.metrics.enabled=true", "--workers", "2")

    [folder] = [line.split()[1] for line in ended.out.splitlines() if line.startswith("logs:")]
    logged = "".join(path.read_text() for path in Path(folder).glob("*.log"))
    for process in ("driver", "cell-0", "cell-1"):
        assert f"{process} answers GET http://127.0.0.1:" in logged


@pytest.mark.parametrize("placement", ["one-cell", "two-cells"])
def test_a_run_whose_collector_never_answers_says_so_once_and_ends(
    tmp_path: Path, placement: str
) -> None:
    with socket.socket() as silent, provider_process(answer={"text": "done"}) as origin:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        ended = run_counter(
            tmp_path,
            origin,
            "++telemetry.metrics.enabled=true",
            "++telemetry.traces.enabled=true",
            f"++telemetry.otlp.endpoint=http://127.0.0.1:{silent.getsockname()[1]}",
            *PLACEMENTS[placement],
        )

    rows = (tmp_path / "x.jsonl").read_text().splitlines()
    warnings = [line for line in ended.err.splitlines() if line.startswith("warning:")]
    assert (ended.code, len(rows)) == (0, ROLLOUTS)
    assert len(warnings) == 1
    assert "telemetry does not reach the collector of " in warnings[0]


IDLE = "++telemetry.prometheus.enabled=true"
SAID_OF_IDLE = (
    "warning: telemetry.prometheus.enabled does nothing: metrics are off; "
    "add telemetry.metrics.enabled=true"
)


def test_a_setting_that_does_nothing_is_said_once_a_run(tmp_path: Path) -> None:
    folder = f"++model_call_capture_dir={tmp_path / 'captures'}"
    with provider_process(answer={"text": "done"}) as origin:
        ended = run_counter(tmp_path, origin, IDLE, folder, "--workers", "2")

    assert ended.code in {0, 1}, ended.err
    assert ended.err.count(SAID_OF_IDLE) == 1
    said = "warning: model_call_capture_dir does nothing: capture is off; add ++observability_en"
    assert ended.err.count(said) == 1


def test_capture_that_is_off_in_so_many_words_is_no_news(tmp_path: Path) -> None:
    folder = f"++model_call_capture_dir={tmp_path / 'captures'}"
    with provider_process(answer={"text": "done"}) as origin:
        ended = run_counter(tmp_path, origin, folder, "++observability_enabled=false")

    assert ended.code in {0, 1}, ended.err
    assert "does nothing" not in ended.err


def test_a_driver_of_servers_that_run_already_says_so_too(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"responses_create_params": {"input": "count"}}\n')
    with provider_process(answer={"text": "done"}) as origin, env_start(tmp_path, origin) as port:
        ended = gym(
            *("eval", "run", "--no-serve", port, "--agent", "counter_agent"),
            *("--input", "rows.jsonl", "--output", "x.jsonl", IDLE),
            cwd=tmp_path,
            environ=environ_of(tmp_path),
        )

    assert ended.code in {0, 1}, ended.err
    assert ended.err.count(SAID_OF_IDLE) == 1
