"""The capture middleware: what is captured, what is held, what happens when something fails."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.capture.facts import CALL_FACTS, CLIENT_WENT_AWAY, CallFacts, UpstreamAttempt
from nemo_gym.capture.memory import MemoryStore
from nemo_gym.capture.middleware import CaptureMiddleware, CaptureSettings, model_call_stack
from support.asgi import Client, Script, body, http_scope, start

SSE = (b"content-type", b"text/event-stream")
JSON = (b"content-type", b"application/json")
CHAT = "/ng-rollout/3-1/v1/chat/completions"
RESPONSES = "/ng-rollout/3-1/v1/responses"
ANSWER = b'{"id": "x", "model": "m"}'


def stack(app: ASGIApp, store: MemoryStore, **settings: Any) -> ASGIApp:
    return CaptureMiddleware(app, CaptureSettings(store, "policy_model", **settings))


async def captured(
    messages: Sequence[Message], path: str = CHAT, error: BaseException | None = None
) -> tuple[dict[str, Any], Client]:
    store, client = MemoryStore(), Client()
    await client.call(stack(Script(messages, error), store), http_scope(path))
    (row,) = store.read("3-1")
    return row, client


async def test_a_call_becomes_one_row_with_its_times_and_bodies() -> None:
    store, client = MemoryStore(), Client(request=[b'{"model"', b': "m"}'])
    ticks = iter([10.0, 10.1, 10.4, 10.5])  # begun, head, body, end
    app = stack(
        Script([start(200, JSON), body(ANSWER)]),
        store,
        clock=lambda: next(ticks),
        wall_clock=lambda: 1000.0,
        new_id=lambda: "c0ffee",
    )
    await client.call(app, http_scope(CHAT))

    (row,) = store.read("3-1")
    assert row["model_call_id"] == "c0ffee"
    assert row["dialect"] == "chat"
    assert row["model_ref"] == {"type": "responses_api_models", "name": "policy_model"}
    assert (row["started_at"], row["latency_ms"], row["latency_ttft_ms"]) == (1000.0, 500.0, 400.0)
    assert (row["status_code"], row["error_category"]) == (200, None)
    assert (row["request"], row["response"]) == ({"model": "m"}, {"id": "x", "model": "m"})


@pytest.mark.parametrize(
    "path",
    [
        "/v1/messages",
        "/ng-rollout/3-1/v1/messages/count_tokens",
        "/ng-rollout/3-1/v1/models",
        "/ng-rollout/3-1/health",
        "/ng-rollout/3-1/v1/responses/resp_1",
    ],
)
async def test_what_is_no_prefixed_model_call_is_not_captured(path: str) -> None:
    store, client, app = MemoryStore(), Client(), Script([start(), body(b"{}")])
    await client.call(stack(app, store), http_scope(path))

    assert store.rollouts() == []
    assert client.data == b"{}"
    assert CALL_FACTS not in app.scopes[0].get("extensions", {})


async def test_what_the_forwarder_knows_is_in_the_row() -> None:
    def note(scope: Scope, number: int) -> None:
        facts = scope["extensions"][CALL_FACTS]
        assert isinstance(facts, CallFacts)
        facts.source, facts.error_category = "local", "connection"
        facts.local_reason = "upstream_unreachable"
        facts.attempts = [UpstreamAttempt(1.0, error="refused"), UpstreamAttempt(2.0, status=502)]

    store, client = MemoryStore(), Client()
    app = Script([start(502, JSON), body(b"{}")], before=note)
    await client.call(stack(app, store), http_scope(CHAT))

    (row,) = store.read("3-1")
    assert (row["response_source"], row["local_response_reason"]) == (
        "local",
        "upstream_unreachable",
    )
    assert (row["error_category"], row["upstream_status_code"]) == ("connection", 502)
    assert len(row["upstream_attempts"]) == 2


async def test_an_application_that_raises_leaves_a_row_and_its_exception() -> None:
    store, client, error = MemoryStore(), Client(), OSError("x")
    raised = await client.call(stack(Script([], error), store), http_scope(CHAT))

    (row,) = store.read("3-1")
    assert row["error_category"] == "exception"
    assert raised is error


async def test_a_body_message_without_a_body_is_one_of_no_bytes() -> None:
    empty = {"type": "http.response.body", "more_body": True}
    chunks = [b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n', b"data: [DONE]\n\n"]
    messages = [body(chunks[0], more=True), empty, body(chunks[1], more=True), body()]
    row, client = await captured([start(200, SSE), *messages])

    assert row["response_raw"] == b"".join(chunks).decode()
    assert client.data == b"".join(chunks)


async def test_what_was_held_goes_out_when_the_application_fails_after_it() -> None:
    row, client = await captured(
        [start(200, SSE), body(b"event: response.completed\n", more=True)], RESPONSES, OSError("x")
    )

    assert client.data == b"event: response.completed\n"
    assert row["status_code"] == 200


@pytest.mark.parametrize("together", [True, False])
async def test_a_head_waits_with_the_body_that_follows_it_at_once(together: bool) -> None:
    store, client, messages = MemoryStore(held=True), Client(), [start(200, JSON), body(ANSWER)]

    def before(scope: Scope, number: int) -> None:
        scope["extensions"][CALL_FACTS].body_follows = together and number == 0

    app = stack(Script(messages, before=before), store)
    call = asyncio.create_task(client.call(app, http_scope(CHAT)))
    for _ in range(5):
        await asyncio.sleep(0)
    sent_before = list(client.got)
    store.let_go()
    await call

    assert sent_before == ([] if together else messages[:1])
    assert client.got == messages


async def test_what_follows_a_head_that_is_all_is_not_kept_for_it() -> None:
    def before(scope: Scope, number: int) -> None:
        scope["extensions"][CALL_FACTS].body_follows = number == 0

    messages, client = [start(204), body()], Client()
    stopped = asyncio.CancelledError("m is stopping")
    app = stack(Script(messages, stopped, before=before), MemoryStore())

    assert await client.call(app, http_scope(CHAT)) is stopped
    assert client.got == messages


async def test_what_was_held_for_nothing_goes_out_before_what_follows() -> None:
    pieces = [b"event: response.completed\n", b'data: {"type": "other"}\n\n', b"data: 1\n\n"]
    _, client = await captured(
        [start(200, SSE), *(body(piece, more=True) for piece in pieces)], RESPONSES
    )

    assert client.data == b"".join(pieces)


async def test_what_follows_the_terminal_event_is_passed_on_and_not_recorded() -> None:
    done = b"data: [DONE]\n\n"
    row, client = await captured(
        [start(200, SSE), body(done, more=True), body(b": late\n\n", more=True), body()]
    )

    assert row["response_raw"] == done.decode()
    assert client.data == done + b": late\n\n"


PHASES: dict[str, list[Message]] = {
    "before_headers": [],
    "before_first_data": [start(200, SSE), body(b": ping\n\n", more=True)],
    "mid_stream": [
        start(200, SSE),
        body(b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n', more=True),
    ],
    "before_terminal": [
        start(200, SSE),
        body(
            b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n',
            more=True,
        ),
    ],
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("how", ["cancelled", "disconnected"])
async def test_a_client_that_goes_away_leaves_one_row_with_the_phase_and_the_partial(
    phase: str, how: str
) -> None:
    store, client = MemoryStore(), Client()
    script = Script(PHASES[phase])

    async def app(scope: Scope, receive: Any, send: Any) -> None:
        await script(scope, receive, send)
        if how == "disconnected":
            client.gone.set()
            assert (await receive())["type"] == "http.disconnect"
        else:
            raise asyncio.CancelledError(CLIENT_WENT_AWAY)

    error = await client.call(stack(app, store), http_scope(CHAT))

    (row,) = store.read("3-1")
    assert (row["error_category"], row["notes"]["phase"]) == ("cancelled", phase)
    assert isinstance(error, asyncio.CancelledError) == (how == "cancelled")
    assert client.got == PHASES[phase]
    assert ("hi" in str(row["response"])) == (phase in {"mid_stream", "before_terminal"})
    assert not store.is_pending("3-1")


async def test_a_client_that_goes_away_while_its_row_is_written_leaves_one_whole_row() -> None:
    store, client = MemoryStore(held=True), Client()
    app = stack(Script([start(200, JSON), body(ANSWER)]), store)
    call = asyncio.create_task(client.call(app, http_scope(CHAT)))
    for _ in range(5):
        await asyncio.sleep(0)
    call.cancel()
    await call
    pending = store.is_pending("3-1")
    store.let_go()

    (row,) = store.read("3-1")
    assert pending
    assert (row["error_category"], row["response"]["id"]) == (None, "x")
    assert not store.is_pending("3-1")


def broken() -> Any:
    raise RuntimeError("a bug")


@pytest.mark.parametrize("setting", ["clock", "wall_clock", "new_id"])
async def test_a_failure_of_capture_never_fails_the_call_and_marks_the_rollout(
    setting: str, caplog: pytest.LogCaptureFixture
) -> None:
    store, client = MemoryStore(), Client()
    script = Script([start(200, JSON), body(ANSWER[:5], more=True), body(ANSWER[5:])])
    app = stack(script, store, **{setting: broken})

    assert await client.call(app, http_scope(CHAT)) is None
    assert client.data == ANSWER
    assert store.rollouts() == []
    assert store.is_incomplete("3-1")
    assert not store.is_pending("3-1")
    assert "a call of rollout 3-1 is lost" in caplog.text


async def test_a_clock_that_fails_half_way_never_fails_the_call() -> None:
    ticks = iter([1.0, 2.0, 3.0])
    store, client = MemoryStore(), Client()
    script = Script([start(200, JSON), body(ANSWER[:5], more=True), body(ANSWER[5:])])

    assert await client.call(stack(script, store, clock=ticks.__next__), http_scope(CHAT)) is None
    assert client.data == ANSWER
    assert store.is_incomplete("3-1")
    assert not store.is_pending("3-1")


async def test_scopes_and_refusals_pass_as_with_capture_off() -> None:
    store, client = MemoryStore(), Client()
    app = stack(Script([start(), body(b"x")], reads_request=False), store)
    await client.call(app, {"type": "lifespan"})
    refused = Client()
    await refused.call(app, http_scope("/ng-rollout/../v1/messages"))

    assert client.data == b"x"
    assert refused.got[0]["status"] == 400
    assert store.rollouts() == []


async def test_messages_that_are_no_response_pass_untouched() -> None:
    trailers = {"type": "http.response.trailers", "headers": [], "more_trailers": False}
    store, client = MemoryStore(), Client()
    await client.call(stack(Script([start(), body(ANSWER), trailers]), store), http_scope(CHAT))

    assert client.got[-1] == trailers


async def test_a_row_that_cannot_be_stored_never_fails_the_call() -> None:
    store, client = MemoryStore(error=OSError("full")), Client()
    app = model_call_stack(Script([start(), body(ANSWER)]), store=store, model_ref_name="m")

    assert await client.call(app, http_scope(CHAT)) is None
    assert client.data == ANSWER
    assert store.is_incomplete("3-1")


async def test_a_body_over_the_limit_is_passed_whole_and_kept_in_part() -> None:
    store, client = MemoryStore(), Client()
    app = model_call_stack(
        Script([start(), body(b"x" * 100)]), store=store, model_ref_name="m", body_limit=10
    )
    await client.call(app, http_scope(CHAT))

    (row,) = store.read("3-1")
    assert row["notes"]["truncated_at"] == 10
    assert client.data == b"x" * 100


async def test_a_request_over_the_limit_is_passed_whole_and_kept_in_part() -> None:
    store, client = MemoryStore(), Client([b'{"messages":[],"model":"m"}'])
    app = model_call_stack(
        Script([start(), body(b"{}")]), store=store, model_ref_name="m", body_limit=10
    )
    await client.call(app, http_scope(CHAT))

    (row,) = store.read("3-1")
    assert (row["notes"]["truncated_at"], row["notes"]["truncated_bodies"]) == (10, ["request"])
    assert row["request_raw"] == '{"messages'


async def test_a_request_that_broke_off_is_noted_though_it_reads_as_whole() -> None:
    async def leaves_half(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await receive()

    messages: list[Message] = [
        {"type": "http.request", "body": b'{"model": "m"}', "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        raise AssertionError(message)

    store = MemoryStore()
    await stack(leaves_half, store)(http_scope(CHAT), receive, send)

    (row,) = store.read("3-1")
    assert row["request"] == {"model": "m"}
    assert row["notes"] == {"phase": "before_headers", "broken_off_body": ["request"]}
