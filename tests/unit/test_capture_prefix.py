"""The prefix middleware: what the app behind it sees, what the client is told."""

from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from nemo_gym.capture.middleware import model_call_stack
from nemo_gym.capture.prefix import Refusal, Routed, route
from nemo_gym.ids import RolloutId, current_rollout_id
from nemo_gym.wire.json import loads_object


class Recorder:
    """An app that remembers what it was called with."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes, str | None]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append((scope["path"], scope["raw_path"], current_rollout_id()))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def call(app: Any, raw_path: str, method: str = "POST", kind: str = "http") -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    path = raw_path.replace("%2F", "/").replace("%20", " ")
    scope = {"type": kind, "path": path, "raw_path": raw_path.encode(), "method": method}
    await app(scope, receive, send)
    return sent


async def test_the_prefix_is_taken_off_and_the_rollout_carried_with_capture_off() -> None:
    inner = Recorder()
    app = model_call_stack(inner, store=None, model_ref_name="policy_model")
    for path in ["/ng-rollout/3-0/v1/models", "/v1/models", "/ng-rollout/3-0-a1"]:
        await call(app, path)

    assert inner.seen == [
        ("/v1/models", b"/v1/models", "3-0"),
        ("/v1/models", b"/v1/models", None),
        ("/", b"/", "3-0-a1"),
    ]
    assert current_rollout_id() is None


@pytest.mark.parametrize(
    "rollout_id",
    [
        "..",
        ".",
        "-rf",
        ".hidden",
        "a" * 300,
        "a%20b",
        "a%00b",
        "%C3%A9",
        "..%2F..%2Fetc",
        "a~b",
        "",
    ],
    ids=lambda text: text[:12] or "empty",
)
async def test_an_unsafe_id_is_answered_400_in_the_clients_dialect(rollout_id: str) -> None:
    inner = Recorder()
    app = model_call_stack(inner, store=None, model_ref_name="policy_model")
    bodies = {}
    for path in ["/v1/responses", "/v1/chat/completions", "/v1/messages/count_tokens"]:
        start, body = await call(app, f"/ng-rollout/{rollout_id}{path}")
        bodies[path] = loads_object(body["body"])
        assert start["status"] == 400
        assert dict(start["headers"])[b"content-length"] == str(len(body["body"])).encode()

    assert inner.seen == []
    assert bodies["/v1/responses"] == bodies["/v1/chat/completions"]
    assert "is not a rollout id" in str(bodies["/v1/responses"])
    messages = bodies["/v1/messages/count_tokens"]
    assert messages is not None
    assert messages["type"] == "error"


@pytest.mark.parametrize("prefix", ["", "/ng-rollout/0-0"])
async def test_a_doubled_v1_is_a_404_that_says_why(prefix: str) -> None:
    app = model_call_stack(Recorder(), store=None, model_ref_name="policy_model")
    start, body = await call(app, f"{prefix}/v1/v1/messages")

    assert start["status"] == 404
    assert b"/v1 twice" in body["body"]


@pytest.mark.parametrize(
    "path",
    [
        "/ng-rollout/0-0//v1/messages",
        "/ng-rollout/0-0/v1//messages",
        "//ng-rollout/0-0/v1/messages",
        "///ng-rollout/0-0///v1//messages",
        "/ng-rollout/0-0/v1/messages/",
        "/ng-rollout/0-0/v1/messages//",
    ],
)
async def test_a_base_url_that_ends_in_a_slash_reaches_the_route(path: str) -> None:
    inner = Recorder()
    await call(model_call_stack(inner, store=None, model_ref_name="policy_model"), path)

    assert inner.seen == [("/v1/messages", b"/v1/messages", "0-0")]


async def test_a_slash_that_is_encoded_is_none() -> None:
    inner = Recorder()
    app = model_call_stack(inner, store=None, model_ref_name="policy_model")
    await call(app, "/ng-rollout/0-0//v1/models/a%2F%2Fb")

    assert inner.seen == [("/v1/models/a//b", b"/v1/models/a%2F%2Fb", "0-0")]


async def test_a_refusal_of_head_has_no_body_and_a_websocket_is_closed() -> None:
    app = model_call_stack(Recorder(), store=None, model_ref_name="policy_model")
    _, body = await call(app, "/ng-rollout/../v1/messages", method="HEAD")
    closed = await call(app, "/ng-rollout/../v1/messages", kind="websocket")

    assert body["body"] == b""
    assert closed == [{"type": "websocket.close", "code": 1008, "reason": ""}]


async def test_other_scopes_pass_through() -> None:
    seen: list[str] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    await call(model_call_stack(inner, store=None, model_ref_name="m"), "/", kind="lifespan")

    assert seen == ["lifespan"]


def test_a_server_without_raw_path_is_read_by_its_encoded_path() -> None:
    routed = route({"type": "http", "path": "/ng-rollout/0-0/v1/mod els"})
    refused = route({"type": "http", "path": "/ng-rollout/0%2D0/v1/models"})

    assert isinstance(routed, Routed)
    assert routed.scope["raw_path"] == b"/v1/mod%20els"
    assert isinstance(refused, Refusal)


def test_an_unprefixed_call_gets_the_rollout_that_the_caller_names() -> None:
    routed = route({"type": "http", "path": "/v1/messages"}, lambda _: RolloutId("s-1"))

    assert isinstance(routed, Routed)
    assert routed.rollout_id == "s-1"


def test_an_unprefixed_call_with_a_doubled_slash_gets_it_too() -> None:
    routed = route({"type": "http", "path": "/v1//messages"}, lambda _: RolloutId("s-1"))

    assert isinstance(routed, Routed)
    assert (routed.rollout_id, routed.raw_path) == ("s-1", b"/v1/messages")
