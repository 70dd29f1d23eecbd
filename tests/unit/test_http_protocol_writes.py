"""The protocol of our sockets writes the head of a response with its body, in one piece."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.server import ServerState

from nemo_gym.servers.http_head import BoundedHeads


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.wrote = asyncio.Event()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))
        self.wrote.set()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def _asked(app: ASGIApp, request: bytes) -> tuple[BoundedHeads, _Transport]:
    """A protocol that has just read one request."""
    config = Config(app, http=BoundedHeads, lifespan="off", log_config=None, interface="asgi3")
    config.load()
    transport, protocol = _Transport(), BoundedHeads(config, ServerState(), {})
    protocol.connection_made(transport)
    protocol.data_received(request)
    return protocol, transport


async def _written(app: ASGIApp, request: bytes) -> _Transport:
    """What the protocol writes for one request, piece by piece."""
    protocol, transport = _asked(app, request)
    await asyncio.wait(protocol.tasks)
    await asyncio.sleep(0)  # the next turn
    protocol.connection_lost(None)
    return transport


@pytest.mark.parametrize("size", [0, 3, 100_000])
async def test_a_response_is_one_write(size: int) -> None:
    found = await _written(JSONResponse("x" * size), b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")

    (one,) = found.written
    head, _, body = one.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert body == b'"%b"' % (b"x" * size)


@pytest.mark.parametrize(
    ("status", "request_line"), [(200, b"HEAD / HTTP/1.1"), (204, b"GET / HTTP/1.1")]
)
async def test_a_head_without_a_body_goes_out(status: int, request_line: bytes) -> None:
    app = Response(status_code=status)

    found = await _written(app, request_line + b"\r\nhost: h\r\n\r\n")

    assert b"".join(found.written).startswith(b"HTTP/1.1 %d " % status)
    assert b"".join(found.written).endswith(b"\r\n\r\n")


async def test_a_connection_that_closes_after_its_answer_has_it_all() -> None:
    asked = b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"

    found = await _written(JSONResponse(1), asked)

    assert b"".join(found.written).endswith(b"\r\n\r\n1")
    assert found.closed


async def test_a_head_does_not_wait_for_a_body_that_takes_long() -> None:
    may = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        await may.wait()
        yield b"late"

    asked = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"
    protocol, transport = _asked(StreamingResponse(pieces()), asked)
    await asyncio.wait_for(transport.wrote.wait(), 10)

    assert transport.written[0].endswith(b"\r\n\r\n")
    may.set()
    await asyncio.wait(protocol.tasks)
    assert b"".join(transport.written).endswith(b"4\r\nlate\r\n0\r\n\r\n")
    protocol.connection_lost(None)
