"""A caller that goes away ends everything done for it, however many servers lie between."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.errors import ConnectFailed
from nemo_gym.servers.guard import DisconnectGuard
from nemo_gym.servers.serve import AppServer, bind_socket
from nemo_gym.transport.server_client import close_connections, request
from support.in_cell import InCell

_REFS = {"resources_server": {"name": "notebook"}, "model_server": {"name": "policy_model"}}
_TREE = {
    "notebook": {"resources_servers": {"notebook": {}}},
    "patient": {"responses_api_agents": {"patient_agent": _REFS}},
    "simple": {"responses_api_agents": {"simple_agent": _REFS}},
}
_ROW = {"responses_create_params": {"input": "q"}, "wanted": ["a"]}
_AGENTS = ["patient", "simple"]


class _Silent:
    """A model that never answers, and knows whether it is still being asked."""

    def __init__(self) -> None:
        self.asked, self.ended = asyncio.Event(), asyncio.Event()

    async def __call__(self, _scope: Scope, _receive: Receive, _send: Send) -> None:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


@pytest.fixture
async def cell() -> AsyncIterator[tuple[InCell, _Silent]]:
    made, model = InCell(_TREE), _Silent()
    # As in the stack of every server; a bare app would have to ask whether its client is there.
    made.add_app("policy_model", DisconnectGuard(model))
    yield made, model
    await made.aclose()


async def _leave_in_the_middle(call: Any, model: _Silent) -> None:
    running = asyncio.ensure_future(call)
    await asyncio.wait_for(model.asked.wait(), 10)
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize("agent", _AGENTS)
async def test_inside_a_cell_the_model_is_no_longer_asked(
    cell: tuple[InCell, _Silent], agent: str
) -> None:
    servers, model = cell

    await _leave_in_the_middle(servers.client.post(agent, "/run", json=_ROW), model)

    await asyncio.wait_for(model.ended.wait(), 10)


@pytest.mark.parametrize("agent", _AGENTS)
async def test_over_http_the_model_is_no_longer_asked(
    cell: tuple[InCell, _Silent], agent: str
) -> None:
    servers, model = cell
    origin, server = await _serve(servers.apps[agent])

    await _leave_in_the_middle(request("POST", f"{origin}/run", json=_ROW), model)

    await asyncio.wait_for(model.ended.wait(), 10)
    await server.stop(0.1)
    await close_connections()


async def _serve(app: ASGIApp) -> tuple[str, AppServer]:
    sock = bind_socket("127.0.0.1", 0)
    server = AppServer(app, sock, "agent")
    await server.start()
    return f"http://127.0.0.1:{sock.getsockname()[1]}", server


async def test_a_client_that_needs_a_url_gets_that_of_a_server_of_its_own_cell(
    cell: tuple[InCell, _Silent],
) -> None:
    servers, _ = cell
    agent: Any = servers.servers["patient"]
    sock = bind_socket("127.0.0.1", 0)
    server = AppServer(servers.apps["notebook"], sock, "policy_model")
    await server.start()

    url = agent.resolve_model_base_url("policy_model", "1-0")

    assert url == f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
    await server.stop(0.1)
    with pytest.raises(ConnectFailed, match="listens nowhere"):
        agent.resolve_model_base_url("policy_model", "1-0")
