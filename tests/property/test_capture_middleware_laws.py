"""Capture beside a call: the client sees the same, and finishes only once the row is durable."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from nemo_gym.capture.memory import MemoryStore
from nemo_gym.capture.middleware import model_call_stack
from support.asgi import Client, Script, body, http_scope, start

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


@given(exchanges(), st.data())
def test_the_client_sees_the_same_with_capture_on_and_off(
    exchange: Exchange, data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, len(exchange.messages)))
    error = data.draw(st.sampled_from([None, ValueError("x"), asyncio.CancelledError()]))
    fails = data.draw(st.booleans())
    store = MemoryStore(error=OSError("full") if fails else None)

    async def seen(on: bool) -> tuple[list[Message], BaseException | None]:
        app = Script(exchange.messages[:count], error)
        stack = model_call_stack(app, store=store if on else None, model_ref_name="m")
        client = Client()
        scope = http_scope("/ng-rollout/0-0" + exchange.path, exchange.method)
        raised = await client.call(stack, scope)
        return client.got, raised

    off, on = asyncio.run(seen(False)), asyncio.run(seen(True))

    if isinstance(error, asyncio.CancelledError):
        # Who cancels has stopped reading: what was held for the row may be left unsent.
        assert on[0] == off[0][: len(on[0])]
        assert on[1] is off[1]
    else:
        assert on == off
    assert len(store.lines["0-0"]) == (0 if fails else 1)
    assert store.is_incomplete("0-0") == fails
    assert not store.is_pending("0-0")


@given(exchanges())
def test_no_client_can_finish_before_the_row_is_durable_and_nothing_else_is_held(
    exchange: Exchange,
) -> None:
    async def act() -> None:
        store = MemoryStore(held=True)
        client = Client()
        stack = model_call_stack(Script(exchange.messages), store=store, model_ref_name="m")
        scope = http_scope("/ng-rollout/0-0" + exchange.path, exchange.method)
        call = asyncio.create_task(client.call(stack, scope))
        for _ in range(len(exchange.messages) + 3):
            await asyncio.sleep(0)

        assert not can_finish(exchange, client.got)
        assert store.is_pending("0-0")
        unfinished = len(client.got)
        assert can_finish(exchange, exchange.messages[: unfinished + 1])
        store.let_go()
        assert await call is None
        assert client.got == list(exchange.messages)
        assert len(store.lines["0-0"]) == 1

    asyncio.run(act())
