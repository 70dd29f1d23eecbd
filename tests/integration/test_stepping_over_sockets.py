"""Streams stepped by the connection to the provider, under whatever stands around the forwarder."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import anyio
import pytest
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.servers.serve import AppServer, bind_socket
from support.model_server import model_in_front_of
from support.wire_server import Connection, WireServer, serve_wire

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
AROUND: ContextVar[str] = ContextVar("AROUND", default="nobody")
NOTED: ContextVar[int] = ContextVar("NOTED")


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


def event(number: int, size: int = 40) -> bytes:
    return b"data: %d %b\n\n" % (number, b"x" * size)


async def nothing_around(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


async def with_context_variables(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """As tracing does it: set around each message, and something kept from one to the next."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            NOTED.set(0)
        token = AROUND.set("send")
        try:
            await send(message)
        finally:
            AROUND.reset(token)
        NOTED.set(NOTED.get() + 1)

    await app(scope, receive, sending)
    assert NOTED.get() > 1
    assert AROUND.get() == "nobody"


async def in_a_task_group(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """With a scope around each message, and a lock that its holder alone may release."""
    lock = anyio.Lock()

    async def sending(message: Message) -> None:
        async with lock:
            with anyio.fail_after(30):
                await send(message)

    async with anyio.create_task_group() as group:
        group.start_soon(app, scope, receive, sending)  # type: ignore[arg-type] # an app is awaitable, says ASGI


async def with_timeouts(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    async def sending(message: Message) -> None:
        async with asyncio.timeout(30):
            await asyncio.wait_for(send(message), 30)
        await asyncio.sleep(0)

    await app(scope, receive, sending)


async def by_a_queue(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """What the app sends is handed on by another task, one message behind."""
    queue: asyncio.Queue[Message] = asyncio.Queue(1)

    async def hand_on() -> None:
        while True:
            await send(await queue.get())
            queue.task_done()

    async with asyncio.TaskGroup() as group:
        handing_on = group.create_task(hand_on())
        await app(scope, receive, queue.put)
        await queue.join()
        handing_on.cancel()


class Passing(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)


AROUNDS = [nothing_around, with_context_variables, in_a_task_group, with_timeouts, by_a_queue]


class Around:
    def __init__(self, app: ASGIApp, around: Callable[..., object]) -> None:
        self.app, self.around = app, around

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self.around(self.app, scope, receive, send)  # type: ignore[misc] # each of AROUNDS is such a function
        else:
            await self.app(scope, receive, send)


@pytest.fixture(params=[*AROUNDS, Passing], ids=lambda around: around.__name__)
def around(request: pytest.FixtureRequest) -> Callable[..., object]:
    found: Callable[..., object] = request.param
    return found


@dataclass
class Upstream:
    """What one test's provider says, and what it saw."""

    says: list[bytes]
    then: str = "stays"
    """`stays`, or `resets`."""
    left: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    """Released once for each client that closed its connection."""
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, connection: Connection) -> None:
        await connection.request()
        try:
            for piece in self.says:
                await connection.say(piece)
                await asyncio.sleep(0)
        except ConnectionError:
            self.left.release()
            return
        if self.then == "resets":
            await self.go_on.wait()
            sock = connection.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1" + bytes(7))
            connection.writer.transport.abort()
            return
        await connection.client_leaves()
        self.left.release()


@asynccontextmanager
async def served(upstream: WireServer, around: Callable[..., object]) -> AsyncGenerator[int]:
    model = model_in_front_of(upstream.origin, max_tries=1)
    app = model.setup_webserver()
    if isinstance(around, type):
        app.add_middleware(around)  # type: ignore[arg-type] # `Passing`, the one class
    else:
        app.add_middleware(Around, around=around)
    sock = bind_socket("127.0.0.1", 0)
    server = AppServer(app, sock, "policy_model")
    await server.start()
    try:
        yield sock.getsockname()[1]
    finally:
        await server.stop(0.05)


class Clients:
    """Raw clients, closed at the end."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []

    async def ask(self, port: int, *, buffer: int | None = None) -> asyncio.StreamReader:
        """Ask for a stream; `buffer`: how little the client holds unread, in bytes."""
        sock = socket.socket()
        if buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=buffer or 1 << 16)
        writer.write(b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
        self.writers.append(writer)
        return reader

    def leave(self) -> None:
        self.writers[-1].transport.abort()


@pytest.fixture
async def clients() -> AsyncGenerator[Clients]:
    found = Clients()
    yield found
    for writer in found.writers:
        writer.transport.abort()
    await asyncio.sleep(0)


async def whole_body(reader: asyncio.StreamReader, pause_s: float = 0) -> bytes:
    await reader.readuntil(b"\r\n\r\n")
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
        await asyncio.sleep(pause_s)
    assert await reader.readexactly(2) == b"\r\n"
    return body


async def test_a_client_that_reads_slowly_gets_every_byte(
    clients: Clients, around: Callable[..., object]
) -> None:
    events = [event(number, 40_000) for number in range(60)]
    upstream = Upstream([HEAD, *map(chunk, events), END])
    async with serve_wire(upstream) as wire, served(wire, around) as port:
        reader = await clients.ask(port, buffer=4096)
        await asyncio.sleep(0.1)  # until nothing more fits in between
        body = await asyncio.wait_for(whole_body(reader), 30)

    assert body == b"".join(events)


@pytest.mark.parametrize("cut", [1, 7, 100, 5000])
async def test_chunks_and_the_end_may_come_in_any_pieces(
    clients: Clients, around: Callable[..., object], cut: int
) -> None:
    """All in one read, several chunks in one, one in several, the end with or without them."""
    events = [event(number) for number in range(40)]
    wire = b"".join([*map(chunk, events), END])[: cut * 300]
    if not wire.endswith(END):
        wire = b"".join([*map(chunk, events[:4]), END])
        events = events[:4]
    upstream = Upstream([HEAD, *(wire[at : at + cut] for at in range(0, len(wire), cut))])
    async with serve_wire(upstream) as server, served(server, around) as port:
        reader = await clients.ask(port)
        body = await asyncio.wait_for(whole_body(reader), 30)

    assert body == b"".join(events)


async def test_a_client_that_leaves_in_the_middle_ends_the_providers_call(
    clients: Clients, around: Callable[..., object]
) -> None:
    half = [HEAD, chunk(event(0)), chunk(event(1)), chunk(event(2))[:20]]
    upstream = Upstream(half)
    async with serve_wire(upstream) as wire, served(wire, around) as port:
        for _ in range(3):
            reader = await clients.ask(port)
            await reader.readuntil(event(1))
            clients.leave()
            await asyncio.wait_for(upstream.left.acquire(), 10)
        upstream.says = [HEAD, chunk(event(0)), END]
        reader = await clients.ask(port)
        body = await asyncio.wait_for(whole_body(reader), 10)

    assert body == event(0)


async def test_a_client_that_leaves_without_reading_ends_the_providers_call(
    clients: Clients, around: Callable[..., object]
) -> None:
    upstream = Upstream([HEAD, *(chunk(event(number, 40_000)) for number in range(20))])
    async with serve_wire(upstream) as wire, served(wire, around) as port:
        reader = await clients.ask(port, buffer=4096)
        await reader.readuntil(b"\r\n\r\n")
        clients.leave()
        await asyncio.wait_for(upstream.left.acquire(), 10)


# Not with Starlette's own middleware, which ends a response in order when its app fails.
@pytest.mark.parametrize("around", AROUNDS, ids=lambda around: around.__name__)
async def test_a_provider_that_breaks_off_breaks_the_clients_connection(
    clients: Clients, around: Callable[..., object]
) -> None:
    upstream = Upstream([HEAD, chunk(event(0)), chunk(event(1))[:20]], then="resets")
    async with serve_wire(upstream) as wire, served(wire, around) as port:
        reader = await clients.ask(port)
        await reader.readuntil(event(0))
        upstream.go_on.set()
        rest = await asyncio.wait_for(reader.read(), 10)

    assert END not in rest


async def test_streams_side_by_side_keep_apart(
    clients: Clients, around: Callable[..., object]
) -> None:
    asked = 0

    async def own(connection: Connection) -> None:
        nonlocal asked
        while True:
            await connection.request()
            asked = number = asked + 1
            await connection.say(HEAD)
            for _ in range(30):
                await connection.say(chunk(event(number)))
                await asyncio.sleep(0)
            await connection.say(END)

    async with serve_wire(own) as wire, served(wire, around) as port:
        readers = [await clients.ask(port) for _ in range(64)]
        bodies = await asyncio.wait_for(asyncio.gather(*map(whole_body, readers)), 60)

    assert {body[:9] for body in bodies} == {event(number)[:9] for number in range(1, 65)}
    assert all(body == body[: len(body) // 30] * 30 for body in bodies)
