"""Heads of requests are bounded; long ones that end in time are served."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.responses import PlainTextResponse

from nemo_gym.servers.http_head import MOST_HEAD_BYTES
from nemo_gym.servers.serve import AppServer, bind_socket

_LINE = b"POST /x HTTP/1.1\r\nhost: h\r\n"


@pytest.fixture
async def port() -> AsyncGenerator[int]:
    sock = bind_socket("127.0.0.1", 0)
    server = AppServer(PlainTextResponse("served"), sock, "bounded")
    await server.start()
    yield sock.getsockname()[1]
    await server.stop(0.05)


async def _answer(port: int, *pieces: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await asyncio.wait_for(reader.readline(), 10)
    except ConnectionError:
        return b"closed"
    finally:
        writer.close()


@pytest.mark.parametrize("endless", [b"x", b"x: y\r\n"], ids=["one header", "many headers"])
async def test_a_head_without_an_end_is_refused(port: int, endless: bytes) -> None:
    begun = _LINE + b"a: b\r\nlong"
    # The last byte is the one too many: what a server leaves unread may cost its answer.
    rest = (endless * MOST_HEAD_BYTES)[: MOST_HEAD_BYTES + 1 - len(begun)]
    answered = await _answer(port, begun, rest)

    assert answered == b"HTTP/1.1 431 Request Header Fields Too Large\r\n"


async def test_a_long_head_and_a_longer_body_are_served(port: int) -> None:
    body = b"z" * (2 * MOST_HEAD_BYTES)
    head = _LINE + b"long: %b\r\ncontent-length: %d\r\n\r\n" % (b"y" * 100_000, len(body))

    assert await _answer(port, head, body) == b"HTTP/1.1 200 OK\r\n"


async def test_heads_one_after_another_on_a_connection_are_not_added_up(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(3):
        writer.write(_LINE + b"content-length: 0\r\nlong: " + b"y" * (MOST_HEAD_BYTES // 2))
        await writer.drain()
        writer.write(b"\r\n\r\n")
        answered = await reader.readuntil(b"served")
        assert answered.startswith(b"HTTP/1.1 200 OK")
    writer.close()
