"""Same results whichever way a run is placed: in this process, in cells, one process a server.

Streaming, session cookies, cancellation, tool errors, provider errors and verifier errors included.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.config.load import ConfigRequest, load_run_config
from nemo_gym.errors import CallTimeout
from nemo_gym.runtime.session import RunningServers, RunOptions, open_run
from nemo_gym.transport.base import Call
from support.provider import Answer, Behaviour, Provider, ReceivedRequest, ToolCall, serve_provider

FIXTURES = Path(__file__).parent.parent / "fixtures" / "placement"
PLACEMENTS = {
    "in this process": RunOptions(),
    "a cell of its own": RunOptions(in_process=False),
    "two cells": RunOptions(workers=2),
    "one process a server": RunOptions(one_process_each=True),
}


def _decide(request: ReceivedRequest) -> Behaviour | None:  # noqa: PLR0911 - a table of modes
    """Play the model of each mode, by what the conversation holds so far."""
    body = request.json()
    items = body["input"]
    if not isinstance(items, list):
        return None
    mode = items[0]["content"]
    outputs = [i for i in items if i.get("type") == "function_call_output"]
    match mode, len(outputs):
        case "tools", 0:
            calls = (ToolCall("add", '{"amount": 2}', "a"), ToolCall("add", '{"amount": 3}', "b"))
            return Behaviour(answer=Answer("", tool_calls=calls))
        case "tools", 2:
            return Behaviour(answer=Answer("", tool_calls=(ToolCall("add", "{broken", "c"),)))
        case "tool_error", 0:
            return Behaviour(answer=Answer("", tool_calls=(ToolCall("boom", "{}", "d"),)))
        case "provider_error", _:
            return Behaviour(status=500, body=b'{"error":{"message":"no GPU left"}}')
        case "hang", _:
            return Behaviour(hang="before_head")
        case _:
            return Behaviour(answer=Answer("done"))


@pytest.fixture
async def provider() -> AsyncGenerator[Provider]:
    async with serve_provider(Provider(decide=_decide)) as served:
        yield served


@asynccontextmanager
async def _run(provider: Provider, options: RunOptions) -> AsyncGenerator[RunningServers]:
    config = load_run_config(
        ConfigRequest(
            resources_servers=("counter",),
            model_types=("openai_model",),
            model="m",
            model_url=provider.base_url,
            model_api_key="k",
            search_dirs=(FIXTURES,),
            environ={},
        )
    )
    told: list[str] = []
    async with open_run(config, options, told.append) as running:
        yield running
    assert told == []


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def _row(mode: str, number: int) -> dict[str, object]:
    return {
        "mode": mode,
        "responses_create_params": {"input": [{"role": "user", "content": mode}]},
        "_ng_task_index": number,
        "_ng_rollout_index": 0,
    }


_VARYING = {"id", "created_at", "completed_at"}


def _settled(value: Any) -> Any:
    """Return `value` without what differs from call to call anyway."""
    if isinstance(value, dict):
        return {k: _settled(v) for k, v in value.items() if k not in _VARYING}
    return [_settled(v) for v in value] if isinstance(value, list) else value


async def _rollout(running: RunningServers, mode: str, number: int) -> tuple[int, Any]:
    reply = await running.client.post(
        server_name="counter_agent", url_path="/run", json=_row(mode, number), spread="load"
    )
    return reply.status, _settled(await reply.json())


async def _results(running: RunningServers) -> dict[str, Any]:
    modes = ["tools", "tool_error", "provider_error", "bad_verifier", "plain"]
    each = await asyncio.gather(*(_rollout(running, m, n) for n, m in enumerate(modes)))
    return dict(zip(modes, each, strict=True))


@pytest.mark.parametrize("name", [n for n in PLACEMENTS if n != "in this process"])
async def test_rollouts_end_the_same_on_every_placement(provider: Provider, name: str) -> None:
    async with _run(provider, PLACEMENTS["in this process"]) as running:
        expected = await _results(running)
    async with _run(provider, PLACEMENTS[name]) as running:
        found = await _results(running)

    assert found == expected


@pytest.mark.parametrize("options", PLACEMENTS.values(), ids=list(PLACEMENTS))
async def test_state_errors_and_failures_are_what_they_should_be(
    provider: Provider, options: RunOptions
) -> None:
    async with _run(provider, options) as running:
        results = await _results(running)

    status, tools = results["tools"]
    assert (status, tools["reward"], tools["seeded"]) == (200, 5.0, True)
    status, told = results["tool_error"]
    (output,) = [i for i in told["response"]["output"] if i["type"] == "function_call_output"]
    assert status == 200
    assert "the tool is out of order" in output["output"]
    status, failed = results["provider_error"]
    assert status == 500
    assert failed["error"]["failure_class"] == "model_error"
    assert failed["error"]["provider_status"] == 500
    assert "no GPU left" in failed["error"]["provider_body"]
    status, failed = results["bad_verifier"]
    assert status == 500
    assert failed["error"]["failure_class"] == "verifier_error"


@pytest.mark.parametrize("options", PLACEMENTS.values(), ids=list(PLACEMENTS))
async def test_a_rollout_given_up_cancels_the_providers_call(
    provider: Provider, options: RunOptions
) -> None:
    async with _run(provider, options) as running:
        with pytest.raises(CallTimeout):
            await running.client.post(
                server_name="counter_agent", url_path="/run", json=_row("hang", 0), timeout=0.5
            )
        await provider.until(lambda counts: counts.cancelled == 1)

        assert provider.counts.in_flight == 0


@pytest.mark.parametrize("options", PLACEMENTS.values(), ids=list(PLACEMENTS))
async def test_a_stream_arrives_event_by_event(provider: Provider, options: RunOptions) -> None:
    provider.decide = None
    provider.default = replace(provider.default, piece_delay_s=0.01)
    body = json.dumps({"model": "x", "input": "hi", "stream": True}).encode()
    async with _run(provider, options) as running:
        for instance in running.client.directory.instances("policy_model"):
            call = Call("POST", "/v1/responses", [(b"content-type", b"application/json")], body)
            pieces = await _pieces(instance.transport.send, call)
            events = [p for p in b"".join(pieces).split(b"\n\n") if p]

            assert len(events) > 5
            assert len(pieces) >= len(events) / 2, "it came in a lump"
            assert events[-1].startswith(b"event: response.completed")


async def _pieces(send: Callable[[Call], Any], call: Call) -> list[bytes]:
    reply = await send(call)
    pieces = []
    while piece := await reply.chunk():
        pieces.append(piece)
    await reply.aclose()
    return pieces
