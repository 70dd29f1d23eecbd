"""The dashboard beside a real run: what its panels ask for is in a scrape of the head server."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nemo_gym.runtime.connect import read_head
from nemo_gym.transport.base import Call
from nemo_gym.transport.http import HttpTransport
from support.eval_command import environ_of
from support.grafana import ADDED_BY_PROMETHEUS, DASHBOARD, QUERIES, labels_in, metrics_of
from support.provider import Answer, Behaviour, Provider, ToolCall, rate_limited, serve_provider
from support.provider_state import ReceivedRequest

NEEDS_A_FAILING_DISK = {"gym_capture_failures_total"}
TOOL = Answer(tool_calls=(ToolCall("search_emails", '{"query": "hello"}'),))
HANG = b"say nothing"


class Scripted:
    """A provider that limits, refuses, asks for tools, and answers slowly until it was seen."""

    def __init__(self) -> None:
        self.calls = 0
        self.seen = False

    def __call__(self, request: ReceivedRequest) -> Behaviour:
        if HANG in request.body:
            return Behaviour(hang="before_head")
        if b"hello" in request.body:  # made by hand, before or between the calls of the run
            return Behaviour()
        self.calls += 1
        if self.calls == 1:
            return rate_limited("0")
        if self.calls == 2:
            return Behaviour(status=400, body=b"{}")
        answer = Answer() if b"function_call_output" in request.body else TOOL
        return Behaviour(answer=answer, delay_s=0.0 if self.seen else 0.2)


@asynccontextmanager
async def running(folder: Path, provider: str) -> AsyncGenerator[str]:
    """Run an evaluation beside the test; give the origin of its head server."""
    arguments = [
        *("eval", "run", "--resources-server", "workplace_tools", "--model-type", "openai_model"),
        *("--model", "m", "--model-url", provider, "--model-api-key", "k"),
        *("--agent", "workplace_tools_simple_agent", "--output", "x.jsonl", "--workers", "2"),
        *("--input", "resources_servers/workplace_tools/data/example.jsonl"),
        *("--num-repeats", "8", "--concurrency", "4", "++telemetry.metrics.enabled=true"),
        *("++telemetry.metrics.sample_interval_s=0.05", "++observability_enabled=true"),
        f"++model_call_capture_dir={folder}/captures",
    ]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nemo_gym", *arguments), cwd=folder, env=environ_of(folder)
    )
    try:
        yield await asyncio.to_thread(head_of_run_in, folder)
        assert await asyncio.wait_for(process.wait(), 30) == 1  # one call was refused
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def head_of_run_in(folder: Path) -> str:
    """Wait until the run is listed; return the origin of its head server."""
    deadline = time.monotonic() + 30
    while not (found := list(folder.glob("state/nemo_gym/runs/*.json"))):
        assert time.monotonic() < deadline, "the run did not start"
        time.sleep(0.05)
    origin: str = json.loads(found[0].read_text())["head_url"]
    return origin


async def call_it_by_hand(head: str, provider: Provider) -> None:
    """Stream one answer from the run's model server, and leave it in the middle of another."""
    servers = (await read_head(head, "/servers"))["servers"]
    [origin] = [s["addresses"][0] for s in servers if s["name"] == "policy_model"]
    model = HttpTransport(origin)
    target = "/ng-rollout/by-hand/v1/chat/completions"
    asked = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "%s"}]}'
    await (await model.send(Call("POST", target, [], asked % b"hello"))).read()
    left = asyncio.ensure_future(model.send(Call("POST", target, [], asked % HANG)))
    before = provider.counts.cancelled
    await provider.until(lambda _: any(HANG in each.body for each in provider.requests))
    left.cancel()
    await provider.until(lambda counts: counts.cancelled > before)
    await model.aclose()


async def scrape(head: str) -> str:
    transport = HttpTransport(head)
    text = await (await transport.send(Call("GET", "/metrics"))).read()
    await transport.aclose()
    return text.decode()


async def scraped_run(folder: Path) -> str:
    """Return a scrape of a run once it has everything that the dashboard asks for."""
    scripted = Scripted()
    wanted = {name for _, expression in QUERIES for name, _ in metrics_of(expression)}
    text = ""
    async with (
        serve_provider(Provider(decide=scripted)) as provider,
        running(folder, provider.origin) as head,
    ):
        try:
            await call_it_by_hand(head, provider)
            async with asyncio.timeout(20):
                while wanted - NEEDS_A_FAILING_DISK - labels_in(text).keys():
                    await asyncio.sleep(0.1)
                    text = await scrape(head)
        except TimeoutError:
            pass  # the tests below say what is missing
        finally:
            scripted.seen = True
    return text


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    return labels_in(asyncio.run(scraped_run(tmp_path_factory.mktemp("run"))))


@pytest.mark.parametrize(("title", "expression"), QUERIES)
def test_a_panel_asks_for_what_a_real_run_exposes(
    exposed: dict[str, set[str]], title: str, expression: str
) -> None:
    for name, labels in metrics_of(expression):
        if name in NEEDS_A_FAILING_DISK:
            continue
        assert name in exposed, title
        assert labels - ADDED_BY_PROMETHEUS <= exposed[name], title


def test_the_processes_to_choose_from_are_labels_of_the_scrape(
    exposed: dict[str, set[str]],
) -> None:
    names = [variable["name"] for variable in DASHBOARD["templating"]["list"]]

    assert names[1:] == ["instance", "process"]
    assert "process" in exposed["target_info"]
