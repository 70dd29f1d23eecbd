"""A model call leaves nothing to the garbage collector, however its provider or its client ends it.

The collector seldom runs in a server, and a call may hold megabytes.
"""

import asyncio
import gc
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress

import pytest
from starlette.types import Message, Scope

from nemo_gym.errors import TransportError
from nemo_gym.servers.forward import Forwarder
from nemo_gym.servers.provider import Provider as ProviderSettings
from nemo_gym.transport.address import parse_address
from nemo_gym.transport.retry import RetryRule
from support.provider import Behaviour, Provider, rate_limited, serve_provider

SCOPE: Scope = {
    "type": "http",
    "method": "POST",
    "raw_path": b"/v1/chat/completions",
    "query_string": b"",
    "headers": [],
}


@pytest.fixture
async def provider() -> AsyncGenerator[Provider]:
    async with serve_provider(Provider(keep_requests=0)) as served:
        yield served


@pytest.fixture
async def forwarder(provider: Provider) -> AsyncGenerator[Forwarder]:
    address = parse_address(provider.origin)
    retry = RetryRule(tries=2, first_wait_s=0.001)
    forwarder = Forwarder(ProviderSettings((address,), ("chat",), retry=retry))
    yield forwarder
    await forwarder.aclose()


@pytest.fixture
def _uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_uncollected")
@pytest.mark.parametrize("stream", [b"true", b"false"], ids=["stream", "json"])
@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(),
        Behaviour(status=500),
        Behaviour(close="before_head"),
        Behaviour(reset="after_head"),
        Behaviour(close="mid_body"),
        Behaviour(invalid_http=True),
        Behaviour(hang="before_head"),
        Behaviour(hang="mid_body"),
        rate_limited("0"),
    ],
    ids=[
        "well",
        "500",
        "closed",
        "reset-after-head",
        "half",
        "no-http",
        "client-gone",
        "client-gone-late",
        "429",
    ],
)
async def test_a_call_is_freed_as_soon_as_it_is_over(
    provider: Provider, forwarder: Forwarder, behaviour: Behaviour, stream: bytes
) -> None:
    provider.default = behaviour
    body = b'{"stream":%b,"input":"%b"}' % (stream, b"x" * 10_000)
    held = sys.getrefcount(body)

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    async def send(_message: Message) -> None:
        """Send nothing to nobody."""

    async def call() -> None:
        with suppress(TransportError):
            await forwarder.forward(dict(SCOPE), receive, send)

    calling = asyncio.create_task(call())
    await asyncio.wait([calling], timeout=0.2 if behaviour.hang else 5)
    calling.cancel()
    await asyncio.wait([calling])
    del calling

    assert sys.getrefcount(body) == held
