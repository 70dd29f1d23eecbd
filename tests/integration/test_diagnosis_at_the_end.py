"""What the last lines of a real run say slowed it down."""

from pathlib import Path

from support.eval_command import environ_of, task_file
from support.eval_servers import COUNTER, provider_process
from support.gym_command import gym

COUNTED = """
import asyncio
import time
from nemo_gym.base_resources_server import (
    AggregateMetricsRequest, BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer,
)

class Counted(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)

    async def aggregate_metrics(self, body: AggregateMetricsRequest):
        for _ in range(8):
            time.sleep(0.3)
            await asyncio.sleep(0.11)
        return await super().aggregate_metrics(body)
"""

SLOW = """
import asyncio
from nemo_gym.base_resources_server import (
    BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer,
)

class Slow(SimpleResourcesServer):
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        await asyncio.sleep(1.0)
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)
"""


def evaluated(folder: Path, origin: str, *more: str, rows: int = 60) -> str:
    """Evaluate an environment, and return what the run printed."""
    task_file(folder, [{}] * rows)
    ended = gym(
        *("eval", "run", "--search-dir", COUNTER, "--resources-server", "counter"),
        *("--agent", "counter_agent", "--model-type", "openai_model", "--model", "m"),
        *("--model-url", origin, "--model-api-key", "k", "--input", "rows.jsonl"),
        *("--output", "x.jsonl", *more),
        cwd=folder,
        environ=environ_of(folder),
    )
    assert ended.code == 0, ended.err
    return ended.out


def test_metrics_that_hold_the_loop_are_not_what_slowed_the_rollouts_down(tmp_path: Path) -> None:
    folder = tmp_path / "held" / "resources_servers" / "counted"
    (folder / "configs").mkdir(parents=True)
    (folder / "app.py").write_text(COUNTED)
    config = "counted: {resources_servers: {counted: {entrypoint: app.py}}}\n"
    (folder / "configs" / "counted.yaml").write_text(config)
    observed = (
        "++telemetry.metrics.enabled=true",
        "++telemetry.metrics.sample_interval_s=0.1",
    )
    change = ("--search-dir", str(tmp_path / "held"), "--resources-server", "counted")
    bind = "++counter_agent.responses_api_agents.simple_agent.resources_server.name=counted"

    with provider_process(answer={"text": "done"}, delay_s=0.5) as origin:
        said = evaluated(tmp_path, origin, *change, bind, "--concurrency", "5", *observed)

    assert "diagnosis: " in said
    assert "event loop" not in said
    assert "not measured" not in said


def test_a_provider_that_answers_all_in_the_same_time_calls_for_more_concurrency(
    tmp_path: Path,
) -> None:
    with provider_process(answer={"text": "done"}, delay_s=1.0) as origin:
        said = evaluated(tmp_path, origin, "--concurrency", "40", rows=240)

    assert "diagnosis: 6.0 times as many rollouts as ran at once" in said
    assert "provider p50 1.0 s" in said
    assert "raise --concurrency: the provider shows no sign of being full" in said
    assert "not measured: telemetry.metrics.enabled=true shows them)\n" in said


def test_a_verifier_that_takes_longer_than_the_provider_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "slow" / "resources_servers" / "slow"
    (folder / "configs").mkdir(parents=True)
    (folder / "app.py").write_text(SLOW)
    config = "slow: {resources_servers: {slow: {entrypoint: app.py}}}\n"
    (folder / "configs" / "slow.yaml").write_text(config)
    change = ("--search-dir", str(tmp_path / "slow"), "--resources-server", "slow")
    bind = "++counter_agent.responses_api_agents.simple_agent.resources_server.name=slow"

    with provider_process(answer={"text": "done"}, delay_s=0.1) as origin:
        said = evaluated(tmp_path, origin, *change, bind, "--concurrency", "5", rows=25)

    assert "diagnosis: agents, tools and verifiers took 9" in said
    assert "of a rollout's time outside model calls; 1." in said
