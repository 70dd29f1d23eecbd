"""A server that stops with calls under way: clients are told in their dialect, rows say so."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from nemo_gym.capture.facts import CALL_FACTS, UpstreamAttempt
from nemo_gym.capture.memory import MemoryStore
from nemo_gym.capture.middleware import CaptureMiddleware, CaptureSettings
from nemo_gym.capture.stopping import stopped_calls
from nemo_gym.servers.guard import DisconnectGuard
from nemo_gym.servers.wall import FailureWall
from support.asgi import Client, body, headers_of, http_scope, start

SSE = (b"content-type", b"text/event-stream")
JSON = (b"content-type", b"application/json")
HELLO = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"hello"}}]}\n\n'
SAID = {"message": "m was stopped while it worked on this call"}
OPENAI = {"type": "server_error", "code": "server_stopping", "param": None}
ERRORS = {
    "/v1/responses": {"error": SAID | OPENAI},
    "/v1/chat/completions": {"error": SAID | OPENAI},
    "/v1/messages": {"type": "error", "error": SAID | {"type": "api_error"}},
}


async def stopped(
    path: str, messages: Sequence[Message], store: MemoryStore | None = None, times: int = 1
) -> tuple[dict[str, Any], Client]:
    """Make a call that is stopped once these messages were sent."""
    store, client, waiting = store or MemoryStore(), Client(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        scope["extensions"][CALL_FACTS].attempts.append(UpstreamAttempt(1.0))
        for message in messages:
            await send(message)
        waiting.set()
        await asyncio.Event().wait()

    captured = DisconnectGuard(CaptureMiddleware(app, CaptureSettings(store, "m")))
    stack = FailureWall(captured, lambda _path, exc: (500, str(exc)), "m", stopped_calls("m"))
    call = asyncio.create_task(client.call(stack, http_scope("/ng-rollout/3-1" + path)))
    await waiting.wait()
    for _ in range(times):
        call.cancel("m is stopping")
        await asyncio.sleep(0)
    assert isinstance(await call, asyncio.CancelledError)
    store.let_go()
    (row,) = store.read("3-1")
    assert not store.is_pending("3-1")
    return row, client


@pytest.mark.parametrize("path", ERRORS)
async def test_a_call_without_an_answer_is_answered_in_its_dialect_and_the_row_has_it(
    path: str,
) -> None:
    row, client = await stopped(path, [])

    assert json.loads(client.data) == row["response"] == ERRORS[path]
    assert client.got[0]["status"] == row["status_code"] == 503
    assert headers_of(client.got[0])[b"x-nemo-gym-refusal"] == b"server_stopping"
    assert (row["response_source"], row["local_response_reason"]) == ("local", "server_stopping")
    assert (row["error_category"], row["upstream_attempted"]) == ("upstream_error", True)
    assert "notes" not in row


@pytest.mark.parametrize(
    ("kind", "sent", "category"),
    [(SSE, HELLO, "stream_truncated"), (JSON, b'{"id":', "exception"), (JSON, b"", "exception")],
)
async def test_a_call_whose_answer_had_begun_is_broken_off_and_the_row_says_so(
    kind: tuple[bytes, bytes], sent: bytes, category: str
) -> None:
    messages = [start(200, kind), body(sent, more=True)]
    row, client = await stopped("/v1/chat/completions", messages)

    assert client.got == messages
    assert (row["status_code"], row["error_category"]) == (200, category)
    assert row["notes"]["server_stopping"] is True
    assert "phase" not in row["notes"]
    assert ("hello" in str(row["response"])) == (sent == HELLO)


async def test_an_error_that_was_held_reaches_the_client_of_a_server_that_stops() -> None:
    error = b'event: error\ndata: {"type":"error","message":"slow down"}\n\n'
    messages = [start(200, SSE), body(error, more=True)]
    row, client = await stopped("/v1/responses", messages)

    assert client.got == messages
    assert row["error_category"] == "upstream_error"


@pytest.mark.parametrize("together", [True, False])
async def test_what_waits_for_its_row_when_the_server_stops_does_not_go_out_before_it(
    together: bool,
) -> None:
    store, client, handed_over = MemoryStore(held=True), Client(), asyncio.Event()
    said = b'{"id":"c"}'
    messages = [start(200, JSON, (b"content-length", b"%d" % len(said))), body(said)]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        scope["extensions"][CALL_FACTS].body_follows = together
        await send(messages[0])
        asyncio.get_running_loop().call_soon(handed_over.set)
        await send(messages[1])

    captured = DisconnectGuard(CaptureMiddleware(app, CaptureSettings(store, "m")))
    stack = FailureWall(captured, lambda _path, exc: (500, str(exc)), "m", stopped_calls("m"))
    call = asyncio.create_task(client.call(stack, http_scope("/ng-rollout/3-1/v1/responses")))
    await handed_over.wait()
    call.cancel("m is stopping")
    assert isinstance(await call, asyncio.CancelledError)
    store.let_go()

    (row,) = store.read("3-1")
    assert client.got == messages[:1]  # broken off, and not another answer than its row has
    assert row["response"] == {"id": "c"}


@pytest.mark.parametrize("together", [True, False])
async def test_a_head_without_a_body_does_not_go_out_before_its_row(together: bool) -> None:
    store, client, handed_over = MemoryStore(held=True), Client(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        scope["extensions"][CALL_FACTS].body_follows = together
        asyncio.get_running_loop().call_soon(handed_over.set)
        await send(start(204))

    captured = CaptureMiddleware(app, CaptureSettings(store, "m"))
    call = asyncio.create_task(client.call(captured, http_scope("/ng-rollout/3-1/v1/responses")))
    await handed_over.wait()
    call.cancel("m is stopping")
    await call

    assert client.got == []
    store.let_go()
    assert len(store.read("3-1")) == 1


async def test_a_call_that_is_stopped_twice_leaves_its_row_all_the_same() -> None:
    row, _ = await stopped("/v1/messages", [], MemoryStore(held=True), times=2)

    assert (row["status_code"], row["local_response_reason"]) == (503, "server_stopping")


async def test_a_call_that_is_dropped_before_its_first_step_was_never_under_way() -> None:
    store, client = MemoryStore(), Client()

    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise AssertionError("it was dropped")

    stack = CaptureMiddleware(app, CaptureSettings(store, "m"))
    scope = http_scope("/ng-rollout/3-1/v1/responses")
    task = asyncio.ensure_future(stack(scope, client.receive, client.send))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert not store.is_pending("3-1")
    assert store.rollouts() == []
