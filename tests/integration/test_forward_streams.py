"""Streams through a model server: as they come, as fast as they are read, ended with the client."""

import asyncio
import gzip
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import zstandard
from starlette.types import Receive, Scope, Send

from nemo_gym.capture.facts import CALL_FACTS, CallFacts
from nemo_gym.errors import ConnectionLost
from nemo_gym.transport.base import Call
from nemo_gym.transport.http import HttpTransport
from nemo_gym.transport.in_process import InProcessTransport
from support.model_server import model_in_front_of, serve_model
from support.provider import Answer, Behaviour, Counts, Provider, serve_provider
from support.provider_bodies import events_of
from support.wire_server import Connection, serve_wire

STREAM = b'{"stream": true, "model": "m"}'
ROUTES = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages"}


@pytest.fixture
async def provider() -> AsyncGenerator[Provider]:
    async with serve_provider() as served:
        yield served


@pytest.mark.parametrize("dialect", list(ROUTES))
async def test_events_come_while_the_provider_still_speaks(
    provider: Provider, dialect: str
) -> None:
    provider.default = Behaviour(piece_delay_s=0.05)
    async with serve_model(provider.origin) as served:
        transport = HttpTransport(served.origin)
        reply = await transport.send(Call("POST", ROUTES[dialect], [], STREAM))
        pieces = []
        while piece := await reply.chunk():
            pieces.append((piece, provider.counts.completed))
        await transport.aclose()

    came_early = [piece for piece, completed in pieces if not completed]
    assert len(came_early) > len(events_of(dialect, Answer())) // 2
    assert pieces[0][0].count(b"\n\n") == 1
    assert (b"content-type", b"text/event-stream") in reply.headers


@pytest.mark.parametrize("fault", [Behaviour(close="mid_body"), Behaviour(reset="mid_body")])
async def test_a_stream_that_breaks_over_there_breaks_here_after_what_came(
    provider: Provider, fault: Behaviour
) -> None:
    provider.default = fault
    async with serve_model(provider.origin) as served:
        transport = HttpTransport(served.origin)
        reply = await transport.send(Call("POST", ROUTES["chat"], [], STREAM))
        came = await reply.chunk()
        with pytest.raises(ConnectionLost):
            await reply.read()

    assert reply.status == 200
    assert came.startswith(b'data: {"id":"chatcmpl-')
    assert b"[DONE]" not in came


async def test_a_stream_that_falls_silent_is_broken_off(provider: Provider) -> None:
    provider.default = Behaviour(hang="mid_body")
    async with serve_model(provider.origin, idle_timeout_s=0.1) as served:
        transport = HttpTransport(served.origin)
        reply = await transport.send(Call("POST", ROUTES["messages"], [], STREAM))
        with pytest.raises(ConnectionLost):
            await reply.read()
        await provider.until(lambda counts: counts.cancelled == 1)


@pytest.mark.parametrize("bare", [False, True], ids=["in the stack", "bare"])
@pytest.mark.parametrize("moment", ["before_head", "mid_body"])
async def test_a_client_that_goes_away_cancels_the_providers_call(
    provider: Provider, moment: str, bare: bool
) -> None:
    provider.default = Behaviour(hang=moment)  # type: ignore[arg-type]
    async with serve_model(provider.origin, bare=bare) as served:
        transport = HttpTransport(served.origin)
        calling = asyncio.create_task(transport.send(Call("POST", ROUTES["chat"], [], STREAM)))
        await provider.until(lambda counts: counts.in_flight == 1)
        if moment == "mid_body":
            await (await calling).aclose()
        else:
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)

        await provider.until(lambda counts: counts.cancelled == 1)
        assert provider.counts == Counts(
            connections=1, requests=1, in_flight=0, peak_in_flight=1, cancelled=1
        )


async def test_capture_is_told_how_a_stream_broke(provider: Provider) -> None:
    provider.default = Behaviour(hang="mid_body")
    facts = CallFacts()
    forward = model_in_front_of(provider.origin, idle_timeout_s=0.05).forwarder.forward

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"][CALL_FACTS] = facts
        await forward(scope, receive, send)

    reply = await InProcessTransport(app).send(Call("POST", ROUTES["chat"], [], STREAM))
    with pytest.raises(ConnectionLost):
        await reply.read()

    assert (facts.source, facts.error_category) == ("upstream", "timeout")
    assert facts.attempts[0].status == 200
    assert str(facts.attempts[0].error).startswith("CallTimeout: ")


async def test_a_client_that_goes_away_while_a_retry_waits_ends_the_retrying(
    provider: Provider,
) -> None:
    provider.default = Behaviour(status=503, headers=(("retry-after", "0.2"),))
    async with serve_model(provider.origin) as served:
        transport = HttpTransport(served.origin)
        calling = asyncio.create_task(transport.send(Call("POST", ROUTES["chat"], [], STREAM)))
        await provider.until(lambda counts: counts.requests == 1)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        await asyncio.sleep(0.4)

        assert provider.counts.requests == 1


async def test_a_slow_client_slows_its_provider_down() -> None:
    sent = 0

    async def endless(connection: Connection) -> None:
        nonlocal sent
        await connection.request()
        await connection.say(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        while True:
            await connection.say(b"data: " + b"x" * 100_000 + b"\n\n")
            sent += 1

    async with serve_wire(endless) as upstream, serve_model(upstream.origin) as served:
        transport = HttpTransport(served.origin)
        reply = await transport.send(Call("POST", ROUTES["chat"], [], STREAM))
        await asyncio.sleep(0.4)
        stalled_at = sent
        await asyncio.sleep(0.2)

        assert 0 < sent == stalled_at
        await reply.aclose()


async def test_json_that_comes_slowly_is_passed_on_before_it_is_whole() -> None:
    finish = asyncio.Event()

    async def patient(connection: Connection) -> None:
        await connection.request()
        await connection.say(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 6\r\n\r\n\n\n"
        )
        await finish.wait()
        await connection.say(b"null")
        await connection.say(b"")

    async with serve_wire(patient) as upstream, serve_model(upstream.origin) as served:
        transport = HttpTransport(served.origin)
        reply = await transport.send(Call("POST", ROUTES["chat"], [], b"{}"))
        first = await reply.chunk()
        finish.set()

        assert first == b"\n\n"
        assert await reply.read() == b"null"
        await transport.aclose()


@pytest.mark.parametrize("first", [b"data: {}\n\n", b"\n", b"e", b"dat", b": ping\n\n"])
async def test_a_stream_that_is_called_json_passes_as_the_stream_it_is(first: bytes) -> None:
    rest = {b"e": b"vent: x\n\n", b"dat": b"a: {}\n\n"}.get(first, b"data: 1\n\n")
    go_on = asyncio.Event()

    async def upstream(connection: Connection) -> None:
        await connection.request()
        await connection.say(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
            b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(first), first)
        )
        await asyncio.sleep(0.01)
        await connection.say(b"%x\r\n%b\r\n" % (len(rest), rest))
        await go_on.wait()
        await connection.say(b"0\r\n\r\n")

    async with serve_wire(upstream) as server, serve_model(server.origin) as served:
        transport = HttpTransport(served.origin)
        reply = await transport.send(Call("POST", ROUTES["chat"], [], STREAM))
        came = b""
        async with asyncio.timeout(0.9):  # a JSON answer would be held for a second
            while came != first + rest:
                came += await reply.chunk()
        go_on.set()
        assert await reply.read() == b""
        await transport.aclose()


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd"])
async def test_a_compressed_answer_passes_compressed(provider: Provider, encoding: str) -> None:
    provider.default = Behaviour(encoding=encoding)  # type: ignore[arg-type]
    async with serve_model(provider.origin) as served:
        transport = HttpTransport(served.origin)
        reply = await transport.send(Call("POST", ROUTES["chat"], [], b"{}"))
        body = await reply.read()
        await transport.aclose()

    assert (b"content-encoding", encoding.encode()) in reply.headers
    assert dict(reply.headers)[b"content-length"] == b"%d" % len(body)
    assert b"chat.completion" not in body


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [("gzip", gzip.compress), ("zstd", lambda data: zstandard.ZstdCompressor().compress(data))],
)
async def test_a_compressed_request_is_unpacked_to_set_the_model(
    provider: Provider, encoding: str, compress: object
) -> None:
    packed = compress(b'{"model": "the clients", "unknown": [1.0, {"x": null}]}')  # type: ignore[operator]
    headers = [(b"content-encoding", encoding.encode()), (b"content-type", b"application/json")]
    async with serve_model(provider.origin) as served:
        transport = HttpTransport(served.origin)
        reply = await transport.send(Call("POST", ROUTES["responses"], headers, packed))
        await reply.read()
        await transport.aclose()

    received = provider.requests[0]
    assert received.body == b'{"model":"configured","unknown":[1.0, {"x": null}]}'
    assert "content-encoding" not in received.headers


async def test_settings_of_the_server_are_set_in_every_call(provider: Provider) -> None:
    settings: dict[str, Any] = {
        "extra_body": {"seed": 7},
        "default_params": {"temperature": 0.5, "top_p": 0.9},
        "extra_headers": {"X-Team": "gym"},
    }
    async with serve_model(provider.origin, **settings) as served:
        transport = HttpTransport(served.origin)
        body = b'{"temperature": 1, "seed": 1}'
        await (await transport.send(Call("POST", ROUTES["chat"], [], body))).read()
        count = Call("POST", "/v1/messages/count_tokens", [], b"{}")
        await (await transport.send(count)).read()
        await transport.aclose()

    call, counting = provider.requests
    assert call.json() == {"model": "configured", "seed": 7, "temperature": 1, "top_p": 0.9}
    assert call.headers["x-team"] == "gym"
    assert counting.json() == {"model": "configured"}


async def test_replicas_share_the_rollouts_and_stand_in_for_each_other() -> None:
    async with (
        serve_provider() as first,
        serve_provider() as second,
        serve_model([first.origin, second.base_url]) as served,
    ):
        transport = HttpTransport(served.origin)
        calls = [
            Call("POST", f"/ng-rollout/{task}-0/v1/responses", [], b"{}") for task in range(12)
        ]
        for call in calls * 2:
            await (await transport.send(call)).read()
        shares = [first.counts.requests, second.counts.requests]
        first.default = Behaviour(reset="before_head")
        statuses = [reply.status for reply in await asyncio.gather(*map(transport.send, calls))]
        await transport.aclose()

    assert min(shares) > 0
    assert [count % 2 for count in shares] == [0, 0]
    assert statuses == [200] * 12


async def test_methods_of_the_server_answer_code_that_calls_them(provider: Provider) -> None:
    async with serve_model(provider.origin) as served:
        response = await served.model.responses({"input": "?"})
        completion = await served.model.chat_completions({"messages": []})
        message = await served.model.messages({"messages": []})

    assert response.model == "configured"
    assert completion.choices[0].finish_reason == "stop"
    assert json.loads(json.dumps(message))["role"] == "assistant"
