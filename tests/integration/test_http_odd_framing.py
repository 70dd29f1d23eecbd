"""Answers whose end is plain although the parser refuses some of their bytes."""

from collections.abc import Awaitable, Callable

import pytest

from nemo_gym.errors import ReplyInvalid
from nemo_gym.transport.base import Call
from nemo_gym.transport.http import HttpTransport, Limits
from support.wire_server import Connection, WireServer, head_and_body, serve_wire

GET = Call("GET", "/")
TWICE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-a: B: c\r\ncontent-length:2\r\n\r\nok"
LISTED = b"HTTP/1.1 200 OK\r\nContent-Length: 2 , 2\r\nx-a: B: c\r\n\r\nok"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def client_of(server: WireServer) -> HttpTransport:
    return HttpTransport(server.origin, limits=Limits(idle_s=5.0))


def answering(answer: bytes) -> Callable[[Connection], Awaitable[None]]:
    """Return what gives one answer on a connection and waits for the client to leave."""

    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.say(answer)
        await connection.client_leaves()

    return handler


@pytest.mark.parametrize("answer", [TWICE, LISTED, CONTINUE + TWICE], ids=["lines", "list", "100"])
@pytest.mark.parametrize("step", [1, 7, 1000])
async def test_one_length_said_twice_is_that_length(answer: bytes, step: int) -> None:
    async def handler(connection: Connection) -> None:
        for _ in range(2):
            await connection.request()
            for begin in range(0, len(answer), step):
                await connection.say(answer[begin : begin + step])

    async with serve_wire(handler) as server:
        transport = client_of(server)
        replies = [await transport.send(GET)]
        bodies = [await replies[0].read()]
        replies.append(await transport.send(GET))
        bodies.append(await replies[1].read())
        await transport.aclose()

        assert bodies == [b"ok", b"ok"]
        assert replies[0].headers == replies[1].headers
        assert sorted(replies[0].headers) == [(b"content-length", b"2"), (b"x-a", b"B: c")]
        assert len(server.connections) == 1


@pytest.mark.parametrize(
    "answer",
    [
        TWICE.replace(b"length:2", b"length:3"),
        LISTED.replace(b", 2", b", 3"),
        LISTED.replace(b"2 , 2", b"-2, -2"),
        TWICE.replace(b"x-a: B: c", b"transfer-encoding: chunked"),
        b"SSH-2.0-OpenSSH\r\n",
    ],
    ids=["two lengths", "two in a list", "no number", "chunked besides", "no http"],
)
async def test_a_length_that_can_be_read_in_two_ways_is_refused(answer: bytes) -> None:
    async with serve_wire(answering(answer)) as server:
        transport = client_of(server)
        with pytest.raises(ReplyInvalid):
            await (await transport.send(GET)).read()
        await transport.aclose()


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\nstray", 204, b""),
        (b"HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\nstray", 204, b""),
        (b"HTTP/1.1 304 Not Modified\r\n\r\n{}", 304, b""),
        (head_and_body(b"ok") + b"stray", 200, b"ok"),
        (TWICE + b"stray", 200, b"ok"),
    ],
    ids=["204", "204 with length", "304", "200", "length said twice"],
)
async def test_bytes_behind_a_whole_answer_cost_the_connection_and_not_the_answer(
    answer: bytes, status: int, body: bytes
) -> None:
    async with serve_wire(answering(answer)) as server:
        transport = client_of(server)
        for _ in range(2):
            reply = await transport.send(GET)
            assert (reply.status, await reply.read()) == (status, body)
        await transport.aclose()

        assert len(server.connections) == 2
