"""The HTTP client against servers that say exactly what a test wants."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from nemo_gym.errors import CallTimeout, ConnectFailed, ConnectionLost, ReplyInvalid
from nemo_gym.transport.base import Call
from nemo_gym.transport.head import CallInvalid
from nemo_gym.transport.http import HttpTransport, Limits
from support.wire_server import Connection, WireServer, head_and_body, serve_wire

GET = Call("GET", "/")


@asynccontextmanager
async def client_of(server: WireServer, **limits: float) -> AsyncGenerator[HttpTransport]:
    limits.setdefault("idle_s", 5.0)
    transport = HttpTransport(server.origin, limits=Limits(**limits))  # type: ignore[arg-type]
    yield transport
    await transport.aclose()


def saying(*answers: bytes) -> Callable[[Connection], Awaitable[None]]:
    """Return a handler that gives each request of a connection the next answer, then closes."""

    async def handler(connection: Connection) -> None:
        for answer in answers:
            await connection.request()
            await connection.say(answer)

    return handler


CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nt: v\r\n\r\n"
)


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        pytest.param(head_and_body(b"hello"), 200, b"hello", id="content-length"),
        pytest.param(CHUNKED, 200, b"abcde", id="chunked, extension and trailer ignored"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\n\r\nto the end", 200, b"to the end", id="ends by closing"
        ),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\nold", 200, b"old", id="http/1.0"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", id="204"),
        pytest.param(
            b"HTTP/1.1 304 X\r\nContent-Length: 9\r\n\r\n", 304, b"", id="304 with length"
        ),
        pytest.param(head_and_body(b""), 200, b"", id="empty body"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + head_and_body(b"a"), 200, b"a", id="100"),
        pytest.param(
            b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + head_and_body(b"a"),
            200,
            b"a",
            id="103",
        ),
        pytest.param(
            head_and_body(b"a", "200 OK", "upgrade: h2", "connection: upgrade"), 200, b"a", id="h2"
        ),
        pytest.param(b"HTTP/1.1 299 \r\ncontent-length: 1\r\n\r\nx", 299, b"x", id="odd status"),
    ],
)
async def test_every_framing_gives_the_body_as_it_was(
    answer: bytes, status: int, body: bytes
) -> None:
    async with serve_wire(saying(answer)) as server, client_of(server) as transport:
        reply = await transport.send(GET)

        assert (reply.status, await reply.read()) == (status, body)
        assert reply.ended
        assert all(name.islower() and name != b"link" for name, _ in reply.headers)


async def test_the_request_goes_out_with_framing_of_our_own() -> None:
    seen: list[bytes] = []

    async def handler(connection: Connection) -> None:
        seen.append(await connection.request())
        await connection.say(head_and_body())

    async with serve_wire(handler) as server, client_of(server) as transport:
        headers = [(b"x-a", b"1"), (b"content-length", b"99"), (b"host", b"elsewhere")]
        await (await transport.send(Call("POST", "/p?q=1", headers, b"body"))).read()

        head, _, body = seen[0].partition(b"\r\n\r\n")
        assert head.split(b"\r\n")[0] == b"POST /p?q=1 HTTP/1.1"
        assert sorted(head.split(b"\r\n")[1:]) == [
            b"content-length: 4",
            b"host: 127.0.0.1:%d" % server.port,
            b"x-a: 1",
        ]
        assert body == b"body"


async def test_a_head_request_has_no_body_whatever_its_headers_say() -> None:
    answers = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"
    async with serve_wire(saying(answers)) as server, client_of(server) as transport:
        reply = await transport.send(Call("HEAD", "/"))

        assert await reply.read() == b""
        assert (b"content-length", b"500") in reply.headers


async def test_one_connection_carries_call_after_call() -> None:
    answers = saying(head_and_body(), CHUNKED, head_and_body())
    async with serve_wire(answers) as server, client_of(server) as transport:
        for _ in range(3):
            await (await transport.send(GET)).read()

        assert len(server.connections) == 1


@pytest.mark.parametrize(
    "answer",
    [
        head_and_body(b"ok", "200 OK", "connection: close"),
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        head_and_body() + b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nsmuggled",
    ],
    ids=["close", "http/1.0", "more than was asked"],
)
async def test_a_connection_that_cannot_go_on_is_not_used_again(answer: bytes) -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.say(answer)
        await connection.client_leaves()

    async with serve_wire(handler) as server, client_of(server) as transport:
        bodies = [await (await transport.send(GET)).read() for _ in range(2)]

        assert bodies == [b"ok", b"ok"]
        assert len(server.connections) == 2


async def test_a_kept_connection_that_closed_meanwhile_is_replaced_unseen() -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.say(head_and_body(b"%d" % connection.number))
        await connection.reader.read(1)  # the next request comes, and this end has had enough

    async with serve_wire(handler) as server, client_of(server) as transport:
        assert await (await transport.send(GET)).read() == b"1"
        call = Call("POST", "/")
        assert await (await transport.send(call)).read() == b"2"
        assert call.replaced == 1


async def test_a_call_that_may_be_sent_only_once_is_not_sent_again() -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.say(head_and_body())
        await connection.reader.read(1)

    async with serve_wire(handler) as server, client_of(server) as transport:
        await (await transport.send(GET)).read()
        with pytest.raises(ConnectionLost):
            await transport.send(Call("POST", "/run", once=True))

        assert len(server.connections) == 1


async def test_a_kept_connection_that_was_at_work_on_the_call_is_not_replaced() -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.say(head_and_body())
        await connection.request()
        await asyncio.sleep(1.1)

    async with serve_wire(handler) as server, client_of(server) as transport:
        await (await transport.send(GET)).read()
        with pytest.raises(ConnectionLost):
            await transport.send(Call("POST", "/run"))

        assert len(server.connections) == 1


async def test_a_fresh_connection_that_closes_is_not_tried_again() -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()

    async with serve_wire(handler) as server, client_of(server) as transport:
        with pytest.raises(ConnectionLost) as lost:
            await transport.send(GET)

        assert not lost.value.response_started
        assert len(server.connections) == 1


@pytest.mark.parametrize(
    "half",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n8\r\nhalf",
    ],
    ids=["content-length", "chunked", "in a chunk"],
)
async def test_half_a_body_gives_what_came_and_then_the_error(half: bytes) -> None:
    async with serve_wire(saying(half)) as server, client_of(server) as transport:
        reply = await transport.send(GET)
        assert await reply.chunk() == b"half"
        with pytest.raises(ConnectionLost) as lost:
            await reply.chunk()

        assert lost.value.response_started
        assert not reply.ended


@pytest.mark.parametrize(
    "nonsense",
    [
        b"220 mail.example ESMTP\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: ten\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nnot-hex\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 400_000,
    ],
    ids=["not http", "bad length", "two lengths", "bad chunk", "upgrade", "endless head"],
)
async def test_what_is_not_http_is_said_to_be_none(nonsense: bytes) -> None:
    async with serve_wire(saying(nonsense)) as server, client_of(server) as transport:
        with pytest.raises(ReplyInvalid, match=str(server.port)):
            await (await transport.send(GET)).read()


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"])
async def test_silence_ends_the_call_and_the_connection(said: bytes) -> None:
    left = asyncio.Event()

    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.say(said)
        await connection.client_leaves()
        left.set()

    async with serve_wire(handler) as server, client_of(server, idle_s=0.05) as transport:
        with pytest.raises(CallTimeout, match=r"silent for 0\.05 s"):
            await (await transport.send(GET)).read()
        await asyncio.wait_for(left.wait(), 2)


async def test_an_answer_may_take_longer_than_the_longest_silence() -> None:
    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.say(b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n")
        for _ in range(20):
            await asyncio.sleep(0.02)
            await connection.say(b"x")

    async with serve_wire(handler) as server, client_of(server, idle_s=0.2) as transport:
        assert await (await transport.send(GET)).read() == b"x" * 20


async def test_a_consumer_that_is_slow_is_not_a_silence_of_the_server() -> None:
    answer = saying(head_and_body(b"x" * 3_000_000))
    async with serve_wire(answer) as server, client_of(server, idle_s=0.1) as transport:
        reply = await transport.send(GET)
        await asyncio.sleep(0.35)

        assert len(await reply.read()) == 3_000_000


async def test_a_slow_consumer_slows_the_server_down() -> None:
    sent = 0

    async def handler(connection: Connection) -> None:
        nonlocal sent
        await connection.request()
        await connection.say(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(1000):
            await connection.say(b"x" * 100_000)
            sent += 1

    async with serve_wire(handler) as server, client_of(server) as transport:
        reply = await transport.send(GET)
        await asyncio.sleep(0.3)
        stalled_at = sent
        await asyncio.sleep(0.1)

        assert sent == stalled_at < 1000
        assert len(await reply.read()) == 100_000_000


async def test_closing_a_reply_before_its_end_cancels_the_call_over_there() -> None:
    left = asyncio.Event()

    async def handler(connection: Connection) -> None:
        await connection.request()
        await connection.say(b"HTTP/1.1 200 OK\r\n\r\nbegun")
        await connection.client_leaves()
        left.set()

    async with serve_wire(handler) as server, client_of(server) as transport:
        reply = await transport.send(GET)
        await reply.aclose()
        await asyncio.wait_for(left.wait(), 2)

        with pytest.raises(ConnectionLost):
            await reply.read()


async def test_a_cancelled_call_closes_its_connection_and_no_other() -> None:
    left = asyncio.Event()

    async def handler(connection: Connection) -> None:
        if b"/slow" in await connection.request():
            await connection.client_leaves()
            left.set()
        await connection.say(head_and_body())

    async with serve_wire(handler) as server, client_of(server) as transport:
        slow = asyncio.create_task(transport.send(Call("GET", "/slow")))
        quick = await transport.send(GET)
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        await asyncio.wait_for(left.wait(), 2)

        assert await quick.read() == b"ok"


async def test_an_answer_that_comes_before_the_request_is_out_is_heard() -> None:
    async def handler(connection: Connection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.say(head_and_body(b"too large", "413 Content Too Large"))
        await connection.client_leaves()

    async with serve_wire(handler) as server, client_of(server) as transport:
        for _ in range(2):
            reply = await transport.send(Call("POST", "/", [], b"x" * 30_000_000))
            assert (reply.status, await reply.read()) == (413, b"too large")

        assert len(server.connections) == 2


@pytest.mark.parametrize(
    "call",
    [
        Call("GET", "/", [(b"x", b"a\r\nforged: 1")]),
        Call("GET", "/", [(b"x\n", b"a")]),
        Call("GET", "/ HTTP/1.1\r\nforged: 1"),
        Call("GET /x", "/"),
        Call("GET", "/é"),
    ],
    ids=["value", "name", "path", "method", "not ascii"],
)
async def test_nothing_can_forge_a_header(call: Call) -> None:
    async with serve_wire(saying(head_and_body())) as server, client_of(server) as transport:
        with pytest.raises(CallInvalid):
            await transport.send(call)

        assert server.connections == []


async def test_a_port_where_nobody_listens_is_named() -> None:
    async with serve_wire(saying()) as server:
        pass
    transport = HttpTransport(server.origin)

    with pytest.raises(ConnectFailed, match=rf"{server.origin}: Connection refused"):
        await transport.send(GET)


async def test_an_ipv6_literal_is_reached() -> None:
    try:
        listening = serve_wire(saying(head_and_body()), "::1")
        server = await listening.__aenter__()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    async with client_of(server) as transport:
        body = await (await transport.send(GET)).read()
    await listening.__aexit__(None, None, None)

    assert body == b"ok"
