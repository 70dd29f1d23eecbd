"""Connections between two calls: what may happen to them while nobody asks."""

import asyncio

import pytest

from nemo_gym.errors import CallTimeout, ConnectionLost
from nemo_gym.transport.base import Call
from nemo_gym.transport.connection import Connection as ClientConnection
from nemo_gym.transport.http import HttpTransport
from support.wire_server import Connection, head_and_body, serve_wire

GET = Call("GET", "/")


async def test_what_nobody_asked_for_is_never_the_answer_to_the_next_call() -> None:
    said = asyncio.Event()

    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.say(head_and_body(b"%d" % connection.number))
        if connection.number == 1:
            await connection.say(head_and_body(b"too slow", "408 Request Timeout"))
            await connection.client_leaves()
            said.set()

    async with serve_wire(handler) as server:
        transport = HttpTransport(server.origin)
        first = await (await transport.send(GET)).read()
        await asyncio.wait_for(said.wait(), 2)
        second = await (await transport.send(GET)).read()
        await transport.aclose()

    assert (first, second) == (b"1", b"2")


async def test_a_connection_that_closed_before_it_was_used_is_a_lost_one_at_once() -> None:
    async def handler(connection: Connection) -> None:
        await connection.reader.read(1)

    async with serve_wire(handler) as server:
        loop = asyncio.get_running_loop()
        transport, connection = await loop.create_connection(
            lambda: ClientConnection(server.origin), "127.0.0.1", server.port
        )
        gone = asyncio.Event()
        connection.released = lambda _connection, _usable: gone.set()
        transport.abort()
        await asyncio.wait_for(gone.wait(), 2)
        waiting = connection.begin(b"GET / HTTP/1.1\r\n\r\n", b"", no_body=False, idle_s=None)

        assert "closed the connection without an answer" in str(waiting.exception())
        assert not connection.heard


async def test_each_event_loop_has_connections_of_its_own() -> None:
    async def handler(connection: Connection) -> None:
        while await connection.request():
            await connection.say(head_and_body())

    async with serve_wire(handler) as server:
        transport = HttpTransport(server.origin)

        async def elsewhere() -> bytes:
            body = await (await transport.send(GET)).read()
            await transport.aclose()
            return body

        here = await (await transport.send(GET)).read()
        there = await asyncio.to_thread(asyncio.run, elsewhere())
        again = await (await transport.send(GET)).read()
        await transport.aclose()

        assert (here, there, again) == (b"ok", b"ok", b"ok")
        assert len(server.connections) == 2


async def test_one_call_takes_the_place_of_one_kept_connection_only() -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        if connection.number == 1:
            await connection.say(head_and_body())
            await connection.reader.read(1)

    async with serve_wire(handler) as server:
        transport = HttpTransport(server.origin)
        await (await transport.send(GET)).read()
        call = Call("POST", "/")
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(transport.send(call), 5)
        await transport.aclose()

        assert (len(server.connections), call.replaced) == (2, 1)


async def test_a_kept_connection_that_closed_is_replaced_by_one_that_was_not_kept() -> None:
    both = asyncio.Barrier(2)

    async def handler(connection: Connection) -> None:
        await connection.request()
        if connection.number < 3:
            await both.wait()  # so that the calls do not share one
        await connection.say(head_and_body(b"%d" % connection.number))
        await connection.reader.read(1)

    async with serve_wire(handler) as server:
        transport = HttpTransport(server.origin)
        replies = await asyncio.gather(transport.send(GET), transport.send(GET))
        for reply in replies:
            await reply.read()
        answered = await (await transport.send(Call("POST", "/"))).read()
        await transport.aclose()

    assert answered == b"3"


async def test_a_kept_connection_that_said_something_before_it_closed_is_not_replaced() -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.say(head_and_body())
        await connection.request()
        await connection.say(b"HTTP/1.1 200 OK\r\ncontent-le")

    async with serve_wire(handler) as server:
        transport = HttpTransport(server.origin)
        await (await transport.send(GET)).read()
        with pytest.raises(ConnectionLost):
            await transport.send(Call("POST", "/"))
        await transport.aclose()

        assert len(server.connections) == 1


async def test_a_call_may_bear_less_silence_than_others() -> None:
    async def handler(connection: Connection) -> None:
        await connection.client_leaves()

    async with serve_wire(handler) as server:
        transport = HttpTransport(server.origin)
        with pytest.raises(CallTimeout):
            await asyncio.wait_for(transport.send(Call("GET", "/", idle_timeout_s=0.05)), 5)
        await transport.aclose()
