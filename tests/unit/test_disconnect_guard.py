"""The disconnect guard: handlers end with their clients, and bodies arrive whole."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.servers.guard import DisconnectGuard
from nemo_gym.transport.caller import CALLER, Caller

_SCOPE: Scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
_GONE: Message = {"type": "http.disconnect"}


def _chunk(body: bytes, *, more: bool) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


class _Client:
    """Sends what it is told, then waits until it goes away; `caller` tells of that, if there."""

    def __init__(self, *messages: Message, caller: Caller | None = None) -> None:
        self.caller = caller
        self.queue: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Message] = []
        self.gone: list[bool] = []
        for message in messages:
            self.queue.put_nowait(message)

    def leave(self) -> None:
        self.queue.put_nowait(_GONE)
        self.queue.put_nowait(_GONE)
        if self.caller is not None:
            self.caller.leaves()

    async def receive(self) -> Message:
        return await self.queue.get()

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def call(self, app: ASGIApp, watch_after_s: float = 0.0) -> Awaitable[None]:
        guard = DisconnectGuard(
            app, lambda _scope, started: self.gone.append(started), watch_after_s=watch_after_s
        )
        scope = dict(_SCOPE)
        if self.caller is not None:
            scope["extensions"] = {CALLER: self.caller}
        return asyncio.wait_for(guard(scope, self.receive, self.send), 5)


@pytest.fixture(params=["read", "told"])
def caller(request: pytest.FixtureRequest) -> Caller | None:
    """Stand for a server that says when a client has gone, and for one that has to be asked."""
    return Caller() if request.param == "told" else None


async def _read(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


async def _let_others_run() -> None:
    """Give the guard every chance to take over reading."""
    for _ in range(100):
        await asyncio.sleep(0)


async def _answer(send: Send, body: bytes = b"ok") -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def _waiting(entered: asyncio.Event, ended: list[str]) -> ASGIApp:
    """Return a handler that reads its body, then waits for ever."""

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        await _read(receive)
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    return app


async def test_a_handler_that_waits_is_cancelled_when_its_client_goes_away(
    caller: Caller | None,
) -> None:
    entered, ended = asyncio.Event(), list[str]()
    client = _Client(_chunk(b"{}", more=False), caller=caller)

    call = asyncio.ensure_future(client.call(_waiting(entered, ended)))
    await entered.wait()
    client.leave()
    await call

    assert ended == ["cancelled"]
    assert client.gone == [False]


async def test_a_handler_that_never_reads_its_body_is_cancelled_too(
    caller: Caller | None,
) -> None:
    ended = list[str]()
    client = _Client(_chunk(b"a", more=True), _chunk(b"b", more=False), caller=caller)
    client.leave()

    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    await client.call(app)

    assert ended == ["ended"]


async def test_a_client_that_leaves_in_its_body_gets_no_answer_and_left_before_one(
    caller: Caller | None,
) -> None:
    client = _Client(_chunk(b'{"a": ', more=True), caller=caller)
    client.leave()

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(asyncio.CancelledError):
            await _read(receive)
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": b"cut"})

    await client.call(app, watch_after_s=60)

    assert client.sent == []
    assert client.gone == [False]


async def test_a_client_that_leaves_in_mid_stream_is_told_apart(
    caller: Caller | None,
) -> None:
    client = _Client(_chunk(b"", more=False), caller=caller)

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await _read(receive)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        client.leave()
        await asyncio.Event().wait()

    await client.call(app)

    assert client.gone == [True]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(max_size=5), min_size=1, max_size=6), st.sampled_from([0.0, 3600.0]))
def test_the_body_arrives_whole_whoever_reads_it(chunks: list[bytes], watch_after_s: float) -> None:
    async def run() -> bytes:
        last = len(chunks) - 1
        client = _Client(*(_chunk(c, more=i < last) for i, c in enumerate(chunks)))
        read = list[bytes]()

        async def app(_scope: Scope, receive: Receive, send: Send) -> None:
            first = await receive()
            await _let_others_run()
            rest = await _read(receive) if first["more_body"] else b""
            read.append(first["body"] + rest)
            await _answer(send)

        await client.call(app, watch_after_s)
        return read[0]

    assert asyncio.run(run()) == b"".join(chunks)


async def test_what_is_read_ahead_is_bounded() -> None:
    pieces = [_chunk(b"x" * (1 << 19), more=True) for _ in range(20)]
    client = _Client(*pieces, _chunk(b"", more=False))
    left = list[int]()

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await _let_others_run()
        left.append(client.queue.qsize())
        assert len(await _read(receive)) == 20 << 19
        await _answer(send)

    await client.call(app)

    assert left[0] >= 16


async def test_the_end_of_a_response_is_not_a_client_that_went_away(
    caller: Caller | None,
) -> None:
    after = list[str]()
    client = _Client(_chunk(b"", more=False), caller=caller)

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await _read(receive)
        await _let_others_run()
        await _answer(send)
        client.leave()  # what a server reports once the response is complete
        await _let_others_run()
        after.append("background work done")

    await client.call(app)

    assert after == ["background work done"]
    assert client.gone == []


async def test_a_cancellation_from_outside_goes_through(
    caller: Caller | None,
) -> None:
    entered, ended = asyncio.Event(), list[str]()
    client = _Client(_chunk(b"", more=False), caller=caller)
    call = asyncio.ensure_future(client.call(_waiting(entered, ended)))
    await entered.wait()

    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    assert client.gone == []


async def _swallow(receive: Receive) -> None:
    with suppress(asyncio.CancelledError):
        await _read(receive)
        await asyncio.Event().wait()


async def _return_at_once(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@pytest.mark.parametrize("handle", [_swallow, _return_at_once])
async def test_a_handler_that_ends_by_itself_leaves_no_cancellation_behind(
    handle: Callable[[Receive], Awaitable[None]],
) -> None:
    client = _Client(_chunk(b"", more=False))
    client.leave()

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        await handle(receive)

    async def outer() -> str:
        guard = DisconnectGuard(app)
        await guard(dict(_SCOPE), client.receive, client.send)
        await _let_others_run()
        return "went on"

    assert await asyncio.wait_for(asyncio.ensure_future(outer()), 5) == "went on"


async def test_an_exception_of_the_handler_goes_through(
    caller: Caller | None,
) -> None:
    client = _Client(_chunk(b"", more=False), caller=caller)

    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await client.call(app)


async def test_no_reader_is_left_behind(
    caller: Caller | None,
) -> None:
    client = _Client(_chunk(b"", more=False), caller=caller)
    before = asyncio.all_tasks()

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await _read(receive)
        await _let_others_run()
        await _answer(send)

    await client.call(app)
    await asyncio.sleep(0)

    assert asyncio.all_tasks() == before


async def test_one_who_is_told_reads_nothing_ahead_until_nothing_more_is_heard() -> None:
    caller = Caller()
    client = _Client(*[_chunk(b"x", more=True)] * 3, _chunk(b"", more=False), caller=caller)
    left = list[int]()

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await _let_others_run()
        left.append(client.queue.qsize())
        caller.falls_silent()
        await _let_others_run()
        left.append(client.queue.qsize())
        assert await _read(receive) == b"xxx"
        await _answer(send)

    await client.call(app)

    assert left == [4, 0]
    assert (caller.when_gone, caller.when_unheard) == (None, None)


async def test_a_guard_within_a_guard_leaves_the_client_to_the_outer_one() -> None:
    entered, ended = asyncio.Event(), list[str]()
    client = _Client(_chunk(b"", more=False), caller=Caller())

    call = asyncio.ensure_future(client.call(DisconnectGuard(_waiting(entered, ended))))
    await entered.wait()
    client.leave()
    await call

    assert ended == ["cancelled"]
    assert client.gone == [False]


async def test_a_client_that_went_before_its_request_began_is_noticed() -> None:
    entered, ended = asyncio.Event(), list[str]()
    client = _Client(_chunk(b"", more=False), caller=Caller())
    client.leave()

    await client.call(_waiting(entered, ended))

    assert ended == ["cancelled"]


async def test_a_handler_that_missed_its_cancellation_ends_when_it_sends(
    caller: Caller | None,
) -> None:
    client, sent = _Client(_chunk(b"", more=False), caller=caller), list[int]()

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await _read(receive)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        client.leave()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        for number in range(3):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            sent.append(number)

    await client.call(app)

    assert sent == []
    assert client.gone == [True]
