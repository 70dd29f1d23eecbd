"""Requests sent before the last one is answered: answered in turn, and a client heard leaving."""

import asyncio
import logging
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Receive, Scope, Send

from nemo_gym.servers.guard import DisconnectGuard
from nemo_gym.servers.http_head import MOST_WAITING, MOST_WAITING_BYTES, BoundedHeads
from nemo_gym.servers.serve import AppServer, bind_socket

_IN_TIME_S = 10


class _Waits:
    """Answers each request with its path and the length of its body once it may."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.began = asyncio.Event()
        self.left = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size, more = 0, scope["path"] != "/unread"
        while more:
            message = await receive()
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
        self.began.set()
        try:
            await self.may.wait()
        except asyncio.CancelledError:
            self.left.set()
            raise
        told = b"%s %d;" % (scope["path"].encode(), size)
        headers = [(b"content-length", b"%d" % len(told))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": told})


class _Served:
    def __init__(self, server: AppServer, app: _Waits, port: int) -> None:
        self.server, self.app, self.port = server, app, port

    def connection(self) -> BoundedHeads:
        assert self.server._server is not None
        (connection,) = self.server._server.server_state.connections
        assert isinstance(connection, BoundedHeads)
        return connection


@pytest.fixture
async def served() -> AsyncGenerator[_Served]:
    sock = bind_socket("127.0.0.1", 0)
    app = _Waits()
    server = AppServer(DisconnectGuard(app), sock, "pipelined")
    await server.start()
    yield _Served(server, app, sock.getsockname()[1])
    await server.stop(0.05)


def _request(path: str, body: bytes = b"") -> bytes:
    return b"POST /%s HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n%b" % (
        path.encode(),
        len(body),
        body,
    )


async def _queued(served: _Served, count: int, size: int) -> None:
    """Wait until the server has read so many requests behind the first, the last of that size."""
    async with asyncio.timeout(_IN_TIME_S):
        while True:
            pipeline = served.connection().pipeline
            if len(pipeline) == count and len(pipeline[0][0].body) == size:
                return
            await asyncio.sleep(0)


@pytest.mark.parametrize("first", ["read", "unread"])
@pytest.mark.parametrize(
    "sizes", [[0], [0, 0], [3, 0, 5, 0], [85_000], [85_000, 200_000, 1]], ids=str
)
async def test_a_client_that_leaves_with_requests_waiting_is_heard(
    served: _Served, first: str, sizes: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(_request(first))
    await served.app.began.wait()
    for count, size in enumerate(sizes, 1):
        writer.write(_request(str(count), b"x" * size))
        await _queued(served, count, size)

    writer.close()

    await asyncio.wait_for(served.app.left.wait(), _IN_TIME_S)
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


async def test_pipelined_requests_are_answered_in_turn(served: _Served) -> None:
    count = 3 * MOST_WAITING
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    sent = [_request(str(number), b"x" * (100_000 * (number % 3))) for number in range(count)]
    writer.write(_request("first") + sent[0])
    await served.app.began.wait()
    served.app.may.set()
    writer.write(b"".join(sent[1:]))

    bodies: list[bytes] = []
    for _ in range(count + 1):
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _IN_TIME_S)
        bodies.append(await reader.readuntil(b";"))

    expected = [b"/%d %d;" % (number, 100_000 * (number % 3)) for number in range(count)]
    assert bodies == [b"/first 0;", *expected]
    writer.close()


@pytest.mark.parametrize("size", [10, 200_000], ids=["small", "large"])
async def test_what_waits_is_bounded(served: _Served, size: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(_request("first"))
    await served.app.began.wait()
    connection = served.connection()

    one = _request("next", b"x" * size)
    async with asyncio.timeout(_IN_TIME_S):
        while not connection.flow.read_paused:
            writer.write(one)
            await writer.drain()
            await asyncio.sleep(0)

    # One read of the socket takes 256 KB at most, whatever that has of requests.
    waiting = connection.pipeline
    assert sum(len(cycle.body) for cycle, _ in waiting) <= MOST_WAITING_BYTES + (1 << 18)
    assert len(waiting) <= MOST_WAITING + (1 << 18) // len(one) + 1
    served.app.may.set()
    writer.close()
