"""Apps on real sockets: binding, starting, stopping, and clients that go away."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.errors import ConfigMistake, PortInUse
from nemo_gym.servers.lifespan import LifespanFailed
from nemo_gym.servers.raw import raw_route
from nemo_gym.servers.serve import AppServer, bind_socket
from nemo_gym.servers.stack import new_app

_ABORT = struct.pack("ii", 1, 0)


def _same(app: ASGIApp) -> ASGIApp:
    return app


def _app() -> FastAPI:
    return new_app("under_test", _same, lambda _path, exc: (500, {"error": str(exc)}))


@asynccontextmanager
async def _serving(app: ASGIApp) -> AsyncIterator[int]:
    sock = bind_socket("127.0.0.1", 0)
    port = sock.getsockname()[1]
    server = AppServer(app, sock, "under_test")
    await server.start()
    try:
        yield port
    finally:
        await asyncio.wait_for(server.stop(0.2), 5)


async def _connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


def _request(method: str, path: str, body: bytes = b"", *, close: bool = True) -> bytes:
    keep = "close" if close else "keep-alive"
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: {keep}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def _ask(port: int, request: bytes) -> bytes:
    reader, writer = await _connect(port)
    writer.write(request)
    await writer.drain()
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    await writer.wait_closed()
    return answer


async def test_every_app_answers_health() -> None:
    async with _serving(_app()) as port:
        answer = await _ask(port, _request("GET", "/health"))

    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b'{"status":"ok"}')


def test_a_port_in_use_is_one_clear_error() -> None:
    with bind_socket("127.0.0.1", 0) as first:
        first.listen()
        port = first.getsockname()[1]

        with pytest.raises(PortInUse, match=rf"127\.0\.0\.1:{port} is in use"):
            bind_socket("127.0.0.1", port)


def test_a_host_of_another_machine_is_one_clear_error() -> None:
    with pytest.raises(ConfigMistake, match=r"192\.0\.2\.1"):
        bind_socket("192.0.2.1", 0)


async def test_a_body_of_any_size_is_taken() -> None:
    app = _app()

    @app.post("/size")
    async def size(request: Request) -> dict[str, int]:
        return {"size": len(await request.body())}

    async with _serving(app) as port:
        answer = await _ask(port, _request("POST", "/size", b"x" * (24 << 20)))

    assert answer.endswith(b'{"size":25165824}')


@pytest.mark.parametrize("route", ["/waits", "/streams"])
async def test_a_client_that_aborts_cancels_the_handler(route: str) -> None:
    app = _app()
    entered, ended = asyncio.Event(), asyncio.Event()

    async def for_ever() -> AsyncIterator[bytes]:
        try:
            yield b"first"
            entered.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    @app.post("/waits")
    async def waits(body: dict[str, Any]) -> None:
        async for _ in for_ever():
            pass

    @app.post("/streams")
    async def streams(body: dict[str, Any]) -> StreamingResponse:
        return StreamingResponse(for_ever())

    async with _serving(app) as port:
        _, writer = await _connect(port)
        writer.write(_request("POST", route, b"{}"))
        await asyncio.wait_for(entered.wait(), 5)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        writer.close()

        await asyncio.wait_for(ended.wait(), 5)


@pytest.mark.parametrize(
    "sent",
    [
        [_request("POST", "/waits", b"x" * 1000)],
        # More than the server takes in for a handler that does not read.
        [_request("POST", "/waits", b"x" * 900_000)],
        [_request("POST", "/waits", b"x" * 900_000)[:-1]],
        [_request("GET", "/health", close=False), _request("POST", "/waits", b"x")],
        [_request("POST", "/waits", b"x", close=False), _request("GET", "/health")],
    ],
    ids=["small", "large", "half-sent", "second", "another-behind"],
)
async def test_a_handler_that_never_reads_ends_with_its_client(sent: list[bytes]) -> None:
    app = _app()
    entered, ended = asyncio.Event(), asyncio.Event()

    async def waits(_scope: Scope, _receive: Receive, _send: Send) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    raw_route(app, "/waits", waits, ["POST"])
    async with _serving(app) as port:
        reader, writer = await _connect(port)
        for request in sent:
            writer.write(request)
            await writer.drain()
            if request is sent[0] and b"/health" in request:
                await reader.readuntil(b"ok")
        await asyncio.wait_for(entered.wait(), 5)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        writer.close()

        await asyncio.wait_for(ended.wait(), 5)


@pytest.mark.parametrize("offer", ["h2c", "websocket", "TLS/1.0"])
@pytest.mark.parametrize("together", [True, False])
async def test_a_client_that_offers_another_protocol_is_served_in_this_one(
    offer: str, together: bool
) -> None:
    app = _app()

    @app.post("/told")
    async def told(request: Request) -> dict[str, str]:
        names = ("upgrade", "http2-settings", "connection", "x-kept", "x-empty", "te")
        told = {name: request.headers[name] for name in names if name in request.headers}
        return told | {"body": (await request.body()).decode()}

    request = (
        f"POST /told HTTP/1.1\r\nhost: x\r\nconnection: Upgrade, HTTP2-Settings, TE\r\n"
        f"upgrade: {offer}\r\nhttp2-settings: AAMAAABk\r\nx-kept: 1\r\nx-empty:\r\nte: trailers\r\n"
        "content-length: 5\r\n\r\nhello"
    ).encode()
    parts = [request] if together else [request[:-5], request[-5:]]
    expected = b'{"connection":"TE","x-kept":"1","x-empty":"","te":"trailers","body":"hello"}'
    async with _serving(app) as port:
        reader, writer = await _connect(port)
        for _ in range(2):  # on one connection
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)
            answer = await asyncio.wait_for(reader.readuntil(b"}"), 5)
            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.endswith(expected)
        writer.write(_request("GET", "/health"))
        assert (await asyncio.wait_for(reader.read(), 5)).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_stopping_lets_a_request_end_within_the_grace() -> None:
    app = _app()
    entered, go_on = asyncio.Event(), asyncio.Event()

    @app.get("/slow")
    async def slow() -> str:
        entered.set()
        await go_on.wait()
        return "done"

    sock = bind_socket("127.0.0.1", 0)
    server = AppServer(app, sock, "under_test")
    await server.start()
    asking = asyncio.ensure_future(_ask(sock.getsockname()[1], _request("GET", "/slow")))
    await entered.wait()
    stopping = asyncio.ensure_future(server.stop(5.0))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait_for(stopping, 5)

    assert (await asking).endswith(b'"done"')


async def test_stopping_cuts_off_streams_and_idle_connections_after_the_grace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = _app()
    cancelled = asyncio.Event()

    async def for_ever() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x"
                await asyncio.sleep(0.01)
        finally:
            cancelled.set()

    @app.get("/streams")
    async def streams() -> StreamingResponse:
        return StreamingResponse(for_ever())

    sock = bind_socket("127.0.0.1", 0)
    server = AppServer(app, sock, "under_test")
    await server.start()
    port = sock.getsockname()[1]
    idle_reader, idle_writer = await _connect(port)
    idle_writer.write(_request("GET", "/health", close=False))
    await idle_reader.readuntil(b"}")
    reader, writer = await _connect(port)
    writer.write(_request("GET", "/streams"))
    await reader.readuntil(b"x")

    began = asyncio.get_running_loop().time()
    await server.stop(0.1)
    took_s = asyncio.get_running_loop().time() - began

    assert took_s < 1.0
    assert cancelled.is_set()
    assert await idle_reader.read() == b""
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
    for each in (writer, idle_writer):
        each.close()


async def test_the_lifespan_runs_once_around_everything() -> None:
    app = _app()
    steps = list[str]()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, str]]:
        steps.append("start")
        yield {"made_in": "lifespan"}
        steps.append("end")

    app.router.lifespan_context = lifespan

    @app.get("/state")
    async def state(request: Request) -> str:
        steps.append("request")
        return str(request.state.made_in)

    async with _serving(app) as port:
        answer = await _ask(port, _request("GET", "/state"))

    assert answer.endswith(b'"lifespan"')
    assert steps == ["start", "request", "end"]


async def test_a_start_that_fails_is_raised_with_its_cause_and_frees_the_port() -> None:
    app = _app()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        raise LookupError("no database")
        yield

    app.router.lifespan_context = lifespan
    sock = bind_socket("127.0.0.1", 0)
    host, port = sock.getsockname()

    with pytest.raises(LifespanFailed, match="no database") as raised:
        await AppServer(app, sock, "under_test").start()

    assert isinstance(raised.value.__cause__, LookupError)
    bind_socket(host, port).close()


async def test_an_unhandled_exception_is_answered_once_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = _app()

    @app.get("/fails")
    async def fails() -> None:
        raise LookupError("broken")

    async with _serving(app) as port:
        answer = await _ask(port, _request("GET", "/fails"))

    assert answer.startswith(b"HTTP/1.1 500")
    assert answer.endswith(b'{"error":"broken"}')
    assert len([r for r in caplog.records if r.exc_info]) == 1
