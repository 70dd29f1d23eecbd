"""A real run that has something to show in every panel of the dashboard, for as long as asked."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from nemo_gym.runtime.connect import read_head
from nemo_gym.transport.base import Call
from nemo_gym.transport.http import HttpTransport
from support.eval_command import environ_of
from support.provider import Answer, Behaviour, Provider, ToolCall, rate_limited, serve_provider
from support.provider_state import ReceivedRequest

__all__ = ["BusyRun", "busy_run"]

_TOOL = Answer(tool_calls=(ToolCall("search_emails", '{"query": "hello"}'),))
_HANG = b"say nothing"
_BY_HAND = b"asked by hand"
_TARGET = "/ng-rollout/by-hand/v1/chat/completions"
_ASKED = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "%s"}]}'


class _Scripted:
    """A provider that limits, refuses, asks for tools, and answers slowly until it was seen."""

    def __init__(self) -> None:
        self.calls = 0
        self.seen = False

    def __call__(self, request: ReceivedRequest) -> Behaviour:
        if _HANG in request.body:
            return Behaviour(hang="before_head")
        if _BY_HAND in request.body:
            return Behaviour()
        self.calls += 1
        if self.calls == 1:
            return rate_limited("0")
        if self.calls == 2:
            return Behaviour(status=400, body=b"{}")
        answer = Answer() if b"function_call_output" in request.body else _TOOL
        return Behaviour(answer=answer, delay_s=0.0 if self.seen else 0.2)


@dataclass(frozen=True, slots=True)
class BusyRun:
    """A run under way, and what a test does beside its own calls."""

    head: str
    """Origin of its head server."""
    model: HttpTransport
    """Way to its model server."""
    provider: Provider

    async def stream_an_answer(self) -> None:
        """Read one streamed answer of the model server: agents of the run do not stream."""
        await (await self.model.send(Call("POST", _TARGET, [], _ASKED % _BY_HAND))).read()

    async def leave_a_call(self) -> None:
        """Leave the model server in the middle of a call."""
        left = asyncio.ensure_future(self.model.send(Call("POST", _TARGET, [], _ASKED % _HANG)))
        before = self.provider.counts.cancelled
        await self.provider.until(lambda _: any(_HANG in r.body for r in self.provider.requests))
        left.cancel()
        await self.provider.until(lambda counts: counts.cancelled > before)


@asynccontextmanager
async def busy_run(folder: Path) -> AsyncGenerator[BusyRun]:
    """Run an evaluation slowly beside the block; let it end when the block has ended."""
    scripted = _Scripted()
    async with (
        serve_provider(Provider(decide=scripted)) as provider,
        _running(folder, provider.origin) as head,
    ):
        servers = (await read_head(head, "/servers"))["servers"]
        [origin] = [s["addresses"][0] for s in servers if s["name"] == "policy_model"]
        model = HttpTransport(origin)
        try:
            yield BusyRun(head, model, provider)
        finally:
            scripted.seen = True
            await model.aclose()


@asynccontextmanager
async def _running(folder: Path, provider: str) -> AsyncGenerator[str]:
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
        yield await asyncio.to_thread(_head_of_run_in, folder)
        assert await asyncio.wait_for(process.wait(), 30) == 1  # one call was refused
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _head_of_run_in(folder: Path) -> str:
    """Wait until the run is listed; return the origin of its head server."""
    deadline = time.monotonic() + 30
    while not (found := list(folder.glob("state/nemo_gym/runs/*.json"))):
        assert time.monotonic() < deadline, "the run did not start"
        time.sleep(0.05)  # a run's file in a directory is told of by nothing
    origin: str = json.loads(found[0].read_text())["head_url"]
    return origin
