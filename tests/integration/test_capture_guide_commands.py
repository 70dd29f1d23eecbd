"""The guide to capture, followed word by word: two terminals, then a look at what was captured."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.base_responses_api_model import (
    CaptureStore,
    aggregate_model_call_metrics,
    read_model_call_records,
)
from support.eval_command import environ_of
from support.eval_servers import provider_process
from support.rollouts import lines_of

FIRST_TERMINAL = """
mkdir -p results/model-calls
capture_dir="$(pwd)/results/model-calls"

exec gym env start \\
    --resources-server mcqa \\
    --model-type openai_model \\
    ++observability_enabled=true \\
    ++model_call_capture_dir="${capture_dir}"
"""
SECOND_TERMINAL = """
capture_dir="$(pwd)/results/model-calls"

gym eval run --no-serve \\
    --agent mcqa_simple_agent \\
    --input resources_servers/mcqa/data/example.jsonl \\
    --output results/mcqa_rollouts.jsonl \\
    --limit 1 \\
    --num-repeats 1 \\
    ++observability_enabled=true \\
    ++model_call_capture_dir="${capture_dir}"
"""
LOOK = 'ls -1 "$(pwd)/results/model-calls"'

CALL_KEYS = [
    *("model_call_id", "response_id", "call_index", "model_ref", "model", "dialect"),
    *("status_code", "response_status", "finish_reason", "tokens_in", "tokens_out"),
    *("tokens_reasoning", "tokens_total", "cache_hit", "cached_tokens", "cache_creation_tokens"),
    *("latency_total_ms", "latency_ttft_ms", "started_at", "completed_at", "error_category"),
    *("response_source", "upstream_attempted", "upstream_status_code", "local_response_reason"),
    *("client_session_id", "client_assistant_message_id", "tool_calls", "reasoning_content"),
]
METRIC_KEYS = [
    *("tokens_in", "tokens_out", "tokens_reasoning", "tokens_total", "cached_tokens"),
    *("latency_total_ms", "num_calls"),
]
STORED_KEYS = [
    *("model_call_id", "dialect", "model_ref", "started_at", "completed_at", "latency_ms"),
    *("latency_ttft_ms", "status_code", "error_category", "request", "response"),
]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture
def folder(tmp_path: Path) -> Generator[Path]:
    with provider_process() as origin:
        settings = {
            "policy_base_url": f"{origin}/v1",
            "policy_api_key": "sk-anything",
            "policy_model_name": "gpt-4.1",
            # Only so that runs beside one another do not meet.
            "head_server": {"port": _free_port()},
        }
        (tmp_path / "env.yaml").write_text(json.dumps(settings))
        yield tmp_path


def _environ(folder: Path) -> dict[str, str]:
    environ = environ_of(folder)
    return {**environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


@contextmanager
def _first_terminal(folder: Path) -> Generator[None]:
    process = subprocess.Popen(
        ["/bin/bash", "-ec", FIRST_TERMINAL],
        cwd=folder,
        env=_environ(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    with process:
        said = []
        for line in process.stdout:
            said.append(line)
            if "healthy" in line:
                break
        try:
            assert process.poll() is None, "".join(said)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=20)


def _typed(folder: Path, command: str) -> str:
    done = subprocess.run(
        ["/bin/bash", "-ec", command], cwd=folder, env=_environ(folder), timeout=60,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_guide_leads_to_the_documented_attachment_and_record(folder: Path) -> None:
    with _first_terminal(folder):
        _typed(folder, SECOND_TERMINAL)
    listed = _typed(folder, LOOK)

    assert listed == "0-0.capture.jsonl\n"
    (row,) = lines_of(folder / "results" / "mcqa_rollouts.jsonl")
    attached: dict[str, Any] = row["ng_model_call_capture"]
    assert list(attached) == ["rollout_id", "metrics", "calls"]
    assert attached["rollout_id"] == "0-0"
    assert list(attached["metrics"]) == METRIC_KEYS
    (call,) = attached["calls"]
    assert list(call) == CALL_KEYS
    assert call["model_ref"] == {"type": "responses_api_models", "name": "policy_model"}
    assert (call["call_index"], call["dialect"], call["status_code"]) == (0, "responses", 200)
    assert call["client_session_id"] is None
    line = json.loads((folder / "results/model-calls/0-0.capture.jsonl").read_text())
    assert list(line)[: len(STORED_KEYS)] == STORED_KEYS
    assert line["model_call_id"] == call["model_call_id"]
    assert line["response"]["id"] == call["response_id"]


def test_the_programmatic_example_reads_what_was_captured(folder: Path) -> None:
    with _first_terminal(folder):
        _typed(folder, SECOND_TERMINAL)
    rollout_id = "0-0"

    store = CaptureStore(str(folder / "results" / "model-calls"))
    calls = read_model_call_records(store, rollout_id)
    totals = aggregate_model_call_metrics(store, rollout_id)

    assert [call.call_index for call in calls] == [0]
    assert calls[0].request is not None
    assert totals["num_calls"] == 1
    assert totals["tokens_in"] == calls[0].tokens_in
