"""Calls to an app of this process: what the app and its caller see is what a socket would show."""

import asyncio
import logging
from collections.abc import Callable
from contextvars import ContextVar

import pytest
from starlette.types import Message, Receive, Scope, Send

from nemo_gym.errors import CallTimeout, ConnectionLost
from nemo_gym.servers.guard import DisconnectGuard
from nemo_gym.transport.base import Call
from nemo_gym.transport.in_process import InProcessTransport

GET = Call("GET", "/")
START: Message = {"type": "http.response.start", "status": 200, "headers": [(b"X-A", b"1")]}


def body(data: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def until(met: Callable[[], bool]) -> None:
    """Let the loop turn until it is so."""
    async with asyncio.timeout(2):
        while not met():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    message = await receive()
    await send(START)
    await send(body(message["body"]))


async def test_status_headers_and_body_come_back() -> None:
    reply = await InProcessTransport(echo).send(Call("POST", "/", [], b"hello"))

    assert (reply.status, reply.headers) == (200, [(b"x-a", b"1")])
    assert await reply.read() == b"hello"
    assert reply.ended


async def test_the_scope_is_what_a_server_would_make() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)
        await echo(scope, receive, send)

    call = Call("PUT", "/a%2Fb/%C3%A9?x=1%20", [(b"x-b", b"2")], b"12")
    await InProcessTransport(app, "mcqa", state={"made": 1}).send(call)

    scope = seen[0]
    assert (scope["type"], scope["method"], scope["http_version"]) == ("http", "PUT", "1.1")
    assert (scope["path"], scope["raw_path"]) == ("/a/b/é", b"/a%2Fb/%C3%A9")
    assert scope["query_string"] == b"x=1%20"
    assert dict(scope["headers"]) == {b"x-b": b"2", b"host": b"mcqa", b"content-length": b"2"}
    assert scope["state"] == {"made": 1}


async def test_the_app_runs_in_a_context_of_its_own() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    variable.set("the caller's")
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(variable.get())
        variable.set("the app's")
        await echo(scope, receive, send)

    await InProcessTransport(app).send(GET)

    assert seen == ["unset"]
    assert variable.get() == "the caller's"


async def test_a_stream_comes_message_by_message_and_no_faster_than_it_is_read() -> None:
    sent: list[int] = []

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(START)
        for number in range(5):
            await send(body(b"%d" % number, more=True))
            sent.append(number)
        await send(body(b""))

    reply = await InProcessTransport(app).send(GET)
    for _ in range(10):
        await asyncio.sleep(0)
    assert sent == [0]

    pieces = []
    while piece := await reply.chunk():
        pieces.append(piece)

    assert pieces == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_caller_that_closes_is_a_disconnect() -> None:
    heard: list[str] = []

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(START)
        await send(body(b"begun", more=True))
        heard.append((await receive())["type"])
        await send(body(b"into the void", more=True))
        heard.append("sent")

    transport = InProcessTransport(app)
    reply = await transport.send(GET)
    await reply.aclose()
    await until(lambda: len(heard) == 2)

    assert heard == ["http.disconnect", "sent"]
    with pytest.raises(ConnectionLost):
        await reply.read()


async def test_a_cancelled_caller_is_a_disconnect() -> None:
    heard: list[str] = []

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        heard.append((await receive())["type"])
        heard.append((await receive())["type"])

    calling = asyncio.create_task(InProcessTransport(app).send(GET))
    await until(lambda: len(heard) == 1)
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    await until(lambda: len(heard) == 2)

    assert heard == ["http.request", "http.disconnect"]


async def test_a_guarded_app_is_cancelled_when_its_caller_goes() -> None:
    seen: list[str] = []

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        seen.append((await receive())["type"])
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    calling = asyncio.create_task(InProcessTransport(DisconnectGuard(app)).send(GET))
    await until(lambda: len(seen) == 1)
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    await until(lambda: len(seen) == 2)

    assert seen == ["http.request", "cancelled"]


async def test_the_end_of_a_response_is_a_disconnect_to_who_still_listens() -> None:
    heard: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await echo(scope, receive, send)
        heard.append((await receive())["type"])

    transport = InProcessTransport(app)
    await (await transport.send(GET)).read()
    await until(lambda: bool(heard))

    assert heard == ["http.disconnect"]


async def test_an_exception_before_the_response_is_a_500(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ValueError("a bug")

    with caplog.at_level(logging.ERROR):
        reply = await InProcessTransport(app, "mcqa").send(GET)

    assert (reply.status, await reply.read()) == (500, b"Internal Server Error")
    assert "exception in mcqa" in caplog.text
    assert "a bug" in caplog.text


async def test_an_exception_after_the_start_breaks_the_connection_after_what_came() -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(START)
        await send(body(b"half", more=True))
        raise ValueError("a bug")

    reply = await InProcessTransport(app).send(GET)

    assert await reply.chunk() == b"half"
    with pytest.raises(ConnectionLost) as lost:
        await reply.chunk()
    assert lost.value.response_started


async def test_an_app_that_ends_without_a_response_is_a_500() -> None:
    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        return

    assert (await InProcessTransport(app).send(GET)).status == 500


async def test_an_app_that_ends_without_the_end_of_its_body_is_a_broken_connection() -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(START)
        await send(body(b"half", more=True))

    with pytest.raises(ConnectionLost, match="without a whole response"):
        await (await InProcessTransport(app).send(GET)).read()


async def test_a_head_request_gets_no_body() -> None:
    reply = await InProcessTransport(echo).send(Call("HEAD", "/", [], b"x"))

    assert await reply.read() == b""


async def test_silence_ends_the_call() -> None:
    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        await receive()
        await receive()

    transport = InProcessTransport(app, idle_s=0.02)

    with pytest.raises(CallTimeout, match=r"silent for 0\.02 s"):
        await transport.send(GET)


async def test_closing_the_transport_ends_what_still_runs() -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(START)
        await asyncio.Event().wait()

    transport = InProcessTransport(app)
    reply = await transport.send(GET)
    await transport.aclose()

    with pytest.raises(ConnectionLost, match="cancelled"):
        await reply.read()
