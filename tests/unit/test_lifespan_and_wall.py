"""The edges of an app: its lifespan, and exceptions that nobody inside it answered."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.errors import CallTimeout, ConnectionLost
from nemo_gym.servers.lifespan import AppLifespan, LifespanFailed
from nemo_gym.servers.raw import json_bytes
from nemo_gym.servers.serve import AppServer, bind_socket
from nemo_gym.servers.wall import FailureWall
from nemo_gym.telemetry.live import server_counts
from nemo_gym.transport.base import Call
from nemo_gym.transport.in_process import InProcessTransport


def _with_lifespan(*, fails_at_end: bool) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        if fails_at_end:
            raise LookupError("could not close")

    return FastAPI(lifespan=lifespan)


async def test_a_shutdown_that_fails_is_raised_with_its_cause() -> None:
    lifespan = AppLifespan(_with_lifespan(fails_at_end=True))
    await lifespan.start()

    with pytest.raises(LifespanFailed, match="could not close") as raised:
        await lifespan.stop()

    assert isinstance(raised.value.__cause__, LookupError)


async def _refuses(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise NotImplementedError("no lifespan here")


async def _returns(_scope: Scope, _receive: Receive, _send: Send) -> None:
    return


async def _dies_between(_scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})


@pytest.mark.parametrize("app", [_refuses, _returns, _dies_between])
async def test_an_app_without_a_lifespan_starts_and_stops(app: ASGIApp) -> None:
    lifespan = AppLifespan(app)

    await lifespan.start()
    await asyncio.sleep(0)
    await lifespan.stop()

    assert lifespan.state == {}


async def test_stopping_what_never_started_frees_the_port() -> None:
    sock = bind_socket("127.0.0.1", 0)
    host, port = sock.getsockname()

    await AppServer(_returns, sock, "never").stop(0.1)

    bind_socket(host, port).close()


def _walled(app: ASGIApp) -> InProcessTransport:
    wall = FailureWall(app, lambda path, exc: (500, {"path": path, "error": str(exc)}), "walled")
    return InProcessTransport(wall)


async def test_an_exception_of_a_layer_of_ours_is_answered_too() -> None:
    async def breaks(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise LookupError("layer broke")

    reply = await _walled(breaks).send(Call("GET", "/x"))

    assert reply.status == 500
    assert await reply.read() == b'{"path":"/x","error":"layer broke"}'


@pytest.mark.parametrize("ends", [SystemExit(3), KeyboardInterrupt(), BaseException("x")])
async def test_what_would_end_the_process_ends_one_request_only(ends: BaseException) -> None:
    async def exits(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ends

    async def exits_late(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ends

    reply = await _walled(exits).send(Call("GET", "/x"))
    half = await _walled(exits_late).send(Call("GET", "/x"))

    assert reply.status == 500
    with pytest.raises(ConnectionLost):
        await half.read()


async def test_a_call_that_a_stopping_server_cuts_off_is_a_lost_connection() -> None:
    working = asyncio.Event()

    async def works(_scope: Scope, _receive: Receive, _send: Send) -> None:
        working.set()
        await asyncio.get_running_loop().create_future()

    transport = _walled(works)
    calling = asyncio.ensure_future(transport.send(Call("POST", "/run")))
    await working.wait()

    await transport.aclose()
    reply = await calling

    assert reply.status == 503
    assert b'"failure_class":"connection"' in await reply.read()


async def test_an_exception_in_the_middle_of_a_response_breaks_the_connection() -> None:
    async def breaks(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise LookupError("broke")

    reply = await _walled(breaks).send(Call("GET", "/x"))

    assert await reply.chunk() == b"half"
    with pytest.raises(ConnectionLost):
        await reply.read()


async def test_a_provider_that_breaks_off_is_named_to_who_called_in_the_same_process() -> None:
    async def breaks(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise CallTimeout("http://provider was silent for 2 s within its answer")

    reply = await _walled(breaks).send(Call("GET", "/x"))

    with pytest.raises(ConnectionLost, match="http://provider was silent for 2 s"):
        await reply.read()


async def test_an_exception_after_the_response_leaves_it_whole() -> None:
    async def breaks(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"whole"})
        raise LookupError("too late")

    reply = await _walled(breaks).send(Call("GET", "/x"))

    assert await reply.read() == b"whole"


@pytest.mark.parametrize("before", ["http.response.debug", "http.response.early_hint"])
async def test_a_message_before_a_response_neither_begins_nor_ends_it(before: str) -> None:
    async def breaks(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": before})
        raise LookupError("before")

    async def breaks_within(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": before})
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise LookupError("within")

    assert await _sent_past_the_wall(breaks) == [before, *_WHOLE]
    with pytest.raises(LookupError, match="within"):
        await _sent_past_the_wall(breaks_within)


async def test_half_a_response_is_broken_off_by_what_its_handler_raised() -> None:
    async def breaks(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise LookupError("broke")

    with pytest.raises(LookupError, match="broke"):
        await _sent_past_the_wall(breaks)


async def test_a_response_that_cannot_begin_is_answered() -> None:
    async def breaks(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "headers": []})

    assert await _sent_past_the_wall(breaks) == _WHOLE


@pytest.mark.parametrize("ends", [LookupError, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize("begun", [False, True], ids=["before", "within"])
async def test_a_request_that_failed_leaves_nothing_to_the_garbage_collector(
    ends: type[BaseException], begun: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", "nemo_gym.servers.wall")  # what it catches, it keeps
    held: list[weakref.ref[object]] = []

    async def breaks(_scope: Scope, _receive: Receive, send: Send) -> None:
        what_it_works_on = {"large"}
        held.append(weakref.ref(what_it_works_on))
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ends("broke")

    gc.disable()
    try:
        with suppress(LookupError, RuntimeError, asyncio.CancelledError):
            await _sent_past_the_wall(breaks)
        assert held[0]() is None
    finally:
        gc.enable()


async def test_a_stopped_server_says_nothing_into_a_response_that_has_begun() -> None:
    sent: list[str] = []

    async def stopped(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await _sent_past_the_wall(stopped, sent)

    assert sent == ["http.response.start"]


async def test_a_request_that_is_dropped_ends_quietly_and_is_no_error() -> None:
    sent: list[str] = []
    live = server_counts("walled")
    before = (live.errors, live.in_flight)

    async def works(_scope: Scope, _receive: Receive, _send: Send) -> None:
        await asyncio.get_running_loop().create_future()

    dropped = _sent_past_the_wall(works, sent)
    dropped.send(None)
    dropped.close()

    assert sent == []
    assert (live.errors, live.in_flight) == before


_WHOLE = ["http.response.start", "http.response.body"]


async def _sent_past_the_wall(app: ASGIApp, sent: list[str] | None = None) -> list[str]:
    """Return the types of the messages that one request to `app` leads to, noted in `sent`."""
    sent = [] if sent is None else sent

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message["type"])

    wall = FailureWall(app, lambda _path, exc: (500, {"error": str(exc)}), "walled")
    await wall({"type": "http", "method": "GET", "path": "/x"}, receive, send)
    return sent


async def test_a_message_that_is_no_request_passes_the_wall() -> None:
    seen: list[str] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append(scope["type"])

    async def nothing() -> Message:
        return {}

    async def nowhere(_message: Message) -> None:
        return

    await FailureWall(app, lambda _p, _e: (500, None), "x")({"type": "lifespan"}, nothing, nowhere)

    assert seen == ["lifespan"]


class _Point(BaseModel):
    x: int


def test_models_anywhere_in_a_value_are_encoded_and_what_is_no_json_is_refused() -> None:
    assert json_bytes({"at": [_Point(x=1)]}) == b'{"at":[{"x":1}]}'
    with pytest.raises(TypeError):
        json_bytes({"at": object()})
