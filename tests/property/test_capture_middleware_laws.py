"""Capture beside a call: the client sees the same, and finishes only once the row is durable."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Scope

from nemo_gym.capture.facts import CALL_FACTS, CLIENT_WENT_AWAY
from nemo_gym.capture.memory import MemoryStore
from nemo_gym.capture.middleware import CaptureMiddleware, CaptureSettings, model_call_stack
from nemo_gym.capture.stopping import stopped_calls
from nemo_gym.servers.wall import FailureWall
from support.asgi import Client, Script, body, http_scope, start
from support.sse import DONE, event, typed

SSE = (b"content-type", b"text/event-stream")
JSON = (b"content-type", b"application/json")
STREAMS = {
    "/v1/responses": (
        b'event: response.created\ndata: {"type":"response.created","response":{"id":"r"}}\n\n'
        b': ping\n\nevent: response.completed\ndata: {"type":"response.completed","response":'
        b'{"id":"r","status":"completed","output":[]}}\n\n'
    ),
    "/v1/chat/completions": (
        b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"h\xc3\xa9"}}]}\r\n\r\n'
        b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\r\n\r\n'
        b"data: [DONE]\r\n\r\n"
    ),
    "/v1/messages": (
        b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{}}}\n\n'
        b'event: ping\ndata: {"type":"ping"}\n\n'
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n: bye\n\n'
    ),
}
TERMINAL = {
    "/v1/responses": b"event: response.completed\n",
    "/v1/chat/completions": b"data: [DONE]\r",
    "/v1/messages": b"event: message_stop\n",
}


@dataclass(frozen=True)
class Exchange:
    path: str
    method: str
    messages: Sequence[Message]


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    path = draw(st.sampled_from(sorted(STREAMS)))
    method = draw(st.sampled_from(["POST", "POST", "POST", "HEAD"]))
    status = draw(st.sampled_from([200, 200, 200, 204, 304, 400, 429, 500, 502]))
    kind = draw(st.sampled_from(["stream", "cut stream", "json", "junk", "empty"]))
    data = {
        "stream": STREAMS[path],
        "cut stream": STREAMS[path][: draw(st.integers(0, len(STREAMS[path])))],
        "json": b'{"id": "x", "usage": {"input_tokens": 1}}',
        "junk": draw(st.binary(max_size=30)),
        "empty": b"",
    }[kind]
    cuts = sorted(draw(st.sets(st.integers(0, len(data)), max_size=8)))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    headers = [SSE if "stream" in kind else JSON]
    if draw(st.booleans()):
        headers.append((b"content-length", str(len(data)).encode()))
    sent = [body(piece, more=True) for piece in pieces]
    if draw(st.booleans()):
        sent.append(body())
    else:
        sent[-1] = body(pieces[-1])
    return Exchange(path, method, [start(status, *headers), *sent])


def can_finish(exchange: Exchange, got: Sequence[Message]) -> bool:
    """Say whether a client that reads eagerly has all it waits for."""
    if not got:
        return False
    declared = dict(got[0]["headers"]).get(b"content-length")
    if exchange.method == "HEAD" or got[0]["status"] in {204, 304} or declared == b"0":
        return True
    data = b"".join(message.get("body", b"") for message in got)
    ended = len(got) > 1 and not got[-1]["more_body"]
    whole = declared is not None and len(got) > 1 and len(data) >= int(declared)
    is_stream = SSE in got[0]["headers"]
    return ended or whole or (is_stream and TERMINAL[exchange.path] in data)


def tell_that_body_follows(scope: Scope, number: int) -> None:
    """Do as a forwarder that has some of the body when it sends the head."""
    facts = scope.get("extensions", {}).get(CALL_FACTS)
    if number == 0 and facts is not None:
        facts.body_follows = True


@given(exchanges(), st.sampled_from([None, tell_that_body_follows]), st.data())
def test_the_client_sees_the_same_with_capture_on_and_off(
    exchange: Exchange, before: Callable[[Scope, int], None] | None, data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, len(exchange.messages)))
    left, stopped = (
        asyncio.CancelledError(CLIENT_WENT_AWAY),
        asyncio.CancelledError("m is stopping"),
    )
    error = data.draw(st.sampled_from([None, ValueError("x"), left, stopped]))
    fails = data.draw(st.booleans())
    store = MemoryStore(error=OSError("full") if fails else None)

    async def seen(on: bool) -> tuple[list[Message], BaseException | None]:
        app = Script(exchange.messages[:count], error, before=before)
        stack = model_call_stack(app, store=store if on else None, model_ref_name="m")
        if error is stopped:
            # It answers for a server that stops where capture does not.
            stack = FailureWall(stack, lambda _path, exc: (500, str(exc)), "m", stopped_calls("m"))
        client = Client()
        scope = http_scope("/ng-rollout/0-0" + exchange.path, exchange.method)
        raised = await client.call(stack, scope)
        return client.got, raised

    off, on = asyncio.run(seen(False)), asyncio.run(seen(True))

    if error is left:
        # Who goes away has stopped reading: what was held for the row may be left unsent.
        assert on[0] == off[0][: len(on[0])]
        assert on[1] is off[1]
    else:
        assert on == off
    assert len(store.lines["0-0"]) == (0 if fails else 1)
    assert store.is_incomplete("0-0") == fails
    assert not store.is_pending("0-0")


@given(exchanges(), st.booleans())
def test_no_client_can_finish_before_the_row_is_durable_and_nothing_else_is_held(
    exchange: Exchange, follows: bool
) -> None:
    async def act() -> None:
        store = MemoryStore(held=True)
        client = Client()
        app = Script(exchange.messages, before=tell_that_body_follows if follows else None)
        stack = model_call_stack(app, store=store, model_ref_name="m")
        scope = http_scope("/ng-rollout/0-0" + exchange.path, exchange.method)
        call = asyncio.create_task(client.call(stack, scope))
        for _ in range(len(exchange.messages) + 3):
            await asyncio.sleep(0)

        assert not can_finish(exchange, client.got)
        assert store.is_pending("0-0")
        # What was said to follow the head goes with it.
        held = 2 if follows and not client.got else 1
        assert can_finish(exchange, exchange.messages[: len(client.got) + held])
        store.let_go()
        assert await call is None
        assert client.got == list(exchange.messages)
        assert len(store.lines["0-0"]) == 1

    asyncio.run(act())


@dataclass
class Timers:
    """Timers that are due when the law says so."""

    due: list[Callable[[], None]] = field(default_factory=list)

    def later(self, _delay_s: float, callback: Callable[[], None]) -> "_Due":
        self.due.append(callback)
        return _Due(self.due, callback)

    def pass_by(self) -> None:
        for callback in tuple(self.due):
            callback()


@dataclass
class _Due:
    due: list[Callable[[], None]]
    callback: Callable[[], None]

    def cancel(self) -> None:
        if self.callback in self.due:
            self.due.remove(self.callback)


EVENTS = [
    typed("response.created", response={"id": "r"}),
    typed("response.output_text.delta", delta="a"),
    typed("response.completed", response={"id": "r", "output": []}),
    typed("response.failed", response={"id": "r", "status": "failed"}),
    typed("error", message="m"),
    event({"error": {"message": "m"}}),
    typed("gateway.attempt", error={"message": "m"}),
    typed("ping"),
    b": ping\n\n",
    DONE,
]


@given(st.lists(st.sampled_from(EVENTS), max_size=6), st.data())
def test_whenever_waiting_is_given_up_the_client_sees_the_same_and_there_is_one_row(
    events: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(events)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    messages = [start(200, SSE), *(body(piece, more=True) for piece in pieces), body()]
    given_up = data.draw(st.sets(st.integers(0, len(messages))))
    follows = data.draw(st.booleans())
    store, client, timers = MemoryStore(), Client(), Timers()

    def before(scope: Scope, number: int) -> None:
        if follows:
            tell_that_body_follows(scope, number)
        if number in given_up:
            timers.pass_by()

    settings = CaptureSettings(store, "m", call_later=timers.later)
    stack = CaptureMiddleware(Script(messages, before=before), settings)
    raised = asyncio.run(client.call(stack, http_scope("/ng-rollout/0-0/v1/responses")))

    assert raised is None
    assert client.got == messages
    assert len(store.lines["0-0"]) == 1
    assert not store.is_pending("0-0")
    if not given_up:
        assert "end_not_awaited" not in str(store.lines["0-0"])
