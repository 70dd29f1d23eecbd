"""The bottleneck of a real run, made on purpose: what `gym top` says of it while it runs."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.eval_command import environ_of
from support.eval_servers import COUNTER, provider_process
from support.gym_command import gym

PATIENCE_S = 30.0
HELD = """
import time
from nemo_gym.base_resources_server import (
    BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer,
)

class Held(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        time.sleep(0.15)
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)
"""


@contextmanager
def running(folder: Path, origin: str, *more: str, rows: int = 400) -> Generator[None]:
    """Evaluate the counter environment beside the test, and end it with the context."""
    row = {"responses_create_params": {"input": "count"}}
    (folder / "rows.jsonl").write_text(f"{json.dumps(row)}\n" * rows)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "nemo_gym", "eval", "run", "--search-dir", COUNTER),
            *("--resources-server", "counter", "--agent", "counter_agent"),
            *("--model-type", "openai_model", "--model", "m", "--model-url", origin),
            *("--model-api-key", "k", "--input", "rows.jsonl", "--output", "x.jsonl"),
            *("++telemetry.metrics.enabled=true", "++telemetry.metrics.sample_interval_s=0.02"),
            *more,
        ],
        cwd=folder,
        env=environ_of(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def seen_of(folder: Path, wanted: str, evidence: str = "") -> dict[str, Any]:
    """Look at the run until `gym top` names `wanted` with `evidence`; return the last look."""
    told: dict[str, Any] = {}
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        ended = gym("top", "--json", cwd=folder, environ=environ_of(folder))
        if ended.code == 0:
            told = json.loads(ended.out)
            said = told["diagnosis"]
            if said["bottleneck"] == wanted and evidence in "; ".join(said["evidence"]):
                break
    return told


@pytest.mark.parametrize(
    ("behaviour", "concurrency", "bottleneck", "evidence"),
    [
        ({"delay_s": 0.4}, "2", "admission", "of the time for admission; provider p50 4"),
        ({"delay_s": 6.0}, "500", "provider", "the provider took "),
        ({"status": 429, "body": "{}"}, "8", "provider_errors", "all of them refused for their n"),
    ],
    ids=["admission", "slow-provider", "rate-limited"],
)
def test_a_bottleneck_made_on_purpose_is_the_one_that_is_named(
    tmp_path: Path, behaviour: dict[str, Any], concurrency: str, bottleneck: str, evidence: str
) -> None:
    rows = 40 if bottleneck == "provider" else 400
    with provider_process(answer={"text": "done"}, **behaviour) as origin:
        more = ("--concurrency", concurrency)
        with running(tmp_path, origin, *more, rows=rows):
            told = seen_of(tmp_path, bottleneck, evidence)

    assert told["diagnosis"]["bottleneck"] == bottleneck
    assert evidence in "; ".join(told["diagnosis"]["evidence"])


def test_a_loop_held_by_synchronous_work_is_named(tmp_path: Path) -> None:
    held = tmp_path / "held" / "resources_servers" / "held"
    (held / "configs").mkdir(parents=True)
    (held / "app.py").write_text(HELD)
    config = "held: {resources_servers: {held: {entrypoint: app.py}}}\n"
    (held / "configs" / "held.yaml").write_text(config)
    change = ("--search-dir", str(tmp_path / "held"), "--resources-server", "held")
    bind = "++counter_agent.responses_api_agents.simple_agent.resources_server.name=held"
    with (
        provider_process(answer={"text": "done"}) as origin,
        running(tmp_path, origin, *change, bind, "--concurrency", "8"),
    ):
        told = seen_of(tmp_path, "event_loop")

    assert told["diagnosis"]["bottleneck"] == "event_loop"
    assert "move synchronous work" in told["diagnosis"]["advice"]
