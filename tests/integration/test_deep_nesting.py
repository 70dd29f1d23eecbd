"""JSON that is nested deeper than it can be read: passed on, or refused; never a bug of ours."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from fastapi import Request

from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.capture.reading import model_call_ids
from nemo_gym.resources_servers.mcqa.app import Mcqa, McqaConfig
from nemo_gym.resources_servers.workplace_tools.toolbox import TOOLS, call_tool
from nemo_gym.resources_servers.workplace_tools.workplace import ToolMistake, Workplace
from nemo_gym.responses_api_models.local_model.accepted import understood
from nemo_gym.servers.forward_usage import UsageReader
from nemo_gym.transport.base import Call
from nemo_gym.transport.directory import Directory
from nemo_gym.transport.http import HttpTransport
from nemo_gym.transport.in_process import InProcessTransport
from nemo_gym.transport.server_client import ServerClient
from support.model_server import serve_model
from support.provider import Provider, serve_provider

_DEPTHS = [970, 990, 1010, 1030, 1100, 100_000]


def _deep(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


class _Agent(SimpleResponsesAPIAgent):
    async def responses(self, request: Request) -> Any:
        return None

    async def run(self, body: dict[str, Any]) -> Any:
        return {"keys": sorted(body)}


@pytest.fixture
async def provider() -> AsyncGenerator[Provider]:
    async with serve_provider() as served:
        yield served


@pytest.mark.parametrize("depth", _DEPTHS)
async def test_a_model_route_passes_it_on(provider: Provider, depth: int) -> None:
    provider.keep_requests = 1
    body = b'{"model":"configured","x":%b}' % _deep(depth)
    async with serve_model(provider.origin) as served:
        transport = HttpTransport(served.origin)
        reply = await transport.send(Call("POST", "/v1/responses", [], body))
        await reply.read()
        await transport.aclose()

    assert reply.status == 200
    assert provider.requests[-1].body.endswith(_deep(depth) + b"}")


@pytest.mark.parametrize("depth", _DEPTHS)
async def test_an_agent_takes_or_refuses_it(depth: int) -> None:
    config = BaseResponsesAPIAgentConfig(name="a", entrypoint="app.py")
    app = _Agent(config=config, server_client=ServerClient(Directory(), {})).setup_webserver()
    reply = await InProcessTransport(app).send(Call("POST", "/run", [], b'{"x":%b}' % _deep(depth)))

    assert reply.status in (200, 400)


@pytest.mark.parametrize("depth", _DEPTHS)
async def test_a_verifier_takes_or_refuses_it(depth: int) -> None:
    config = McqaConfig(name="mcqa", entrypoint="app.py")
    app = Mcqa(config=config, server_client=ServerClient(Directory(), {})).setup_webserver()
    row = b'{"options":{"A":"x","B":"y"},"expected_answer":"A","x":%b}' % _deep(depth)
    reply = await InProcessTransport(app).send(Call("POST", "/verify", [], row))

    assert reply.status in (200, 400)


@pytest.mark.parametrize("depth", _DEPTHS)
def test_no_reader_fails_of_it(depth: int) -> None:
    body = b'{"input":%b,"choices":%b}' % (_deep(depth), _deep(depth))
    usage = UsageReader("chat", stream=False)
    usage.feed(body)

    assert usage.counts() is None
    assert understood(body) == body
    assert model_call_ids(body) == []
    with pytest.raises(ToolMistake):
        call_tool(Workplace("me", "now"), next(iter(TOOLS)), body)
