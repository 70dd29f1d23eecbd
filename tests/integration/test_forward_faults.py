"""What a client hears when its provider misbehaves, in each dialect."""

import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nemo_gym.capture.facts import CALL_FACTS, CallFacts
from nemo_gym.errors import ConnectionLost
from nemo_gym.transport.base import Call
from nemo_gym.transport.http import HttpTransport
from nemo_gym.transport.in_process import InProcessTransport
from nemo_gym.transport.server_client import CallFailed
from support.model_server import KEY, model_in_front_of, serve_model
from support.provider import Behaviour, Provider, rate_limited, serve_provider, unauthorised
from support.wire_server import Connection, head_and_body, serve_wire

ROUTES = ["/v1/responses", "/v1/chat/completions", "/v1/messages"]
JSON_HEADER = [(b"content-type", b"application/json")]


@pytest.fixture
async def provider() -> AsyncGenerator[Provider]:
    async with serve_provider() as served:
        yield served


@asynccontextmanager
async def client_of(provider: Provider, **settings: Any) -> AsyncGenerator[HttpTransport]:
    async with serve_model(provider.origin, **settings) as served:
        transport = HttpTransport(served.origin)
        yield transport
        await transport.aclose()


async def ask(
    transport: HttpTransport, route: str = ROUTES[0], body: bytes = b"{}"
) -> tuple[int, bytes]:
    reply = await transport.send(Call("POST", route, list(JSON_HEADER), body))
    return reply.status, await reply.read()


def message_of(route: str, body: bytes) -> str:
    """Return the message of an error body, which must have the shape of the route's dialect."""
    value = json.loads(body)
    if route == "/v1/messages":
        assert value["type"] == "error"
        assert isinstance(value["error"]["type"], str)
    else:
        assert set(value["error"]) == {"message", "type", "param", "code"}
    return str(value["error"]["message"])


FAULTS = [
    pytest.param(Behaviour(reset="before_head"), 502, "without an answer", id="reset"),
    pytest.param(Behaviour(close="before_head"), 502, "without an answer", id="close"),
    pytest.param(Behaviour(reset="after_head"), 502, "before the answer was whole", id="head only"),
    pytest.param(Behaviour(close="mid_body"), 502, "before the answer was whole", id="half a body"),
    pytest.param(Behaviour(invalid_http=True), 502, "does not answer in HTTP", id="not http"),
    pytest.param(Behaviour(hang="before_head"), 504, "was silent for 0.1 s", id="never answers"),
    pytest.param(Behaviour(hang="after_head"), 504, "was silent for 0.1 s", id="only a head"),
    pytest.param(
        Behaviour(status=500, close="mid_body"), 502, "before the answer", id="half a 500"
    ),
]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("fault", "status", "says"), FAULTS)
async def test_bounded_tries_and_then_an_error_in_the_clients_dialect(
    provider: Provider, route: str, fault: Behaviour, status: int, says: str
) -> None:
    provider.default = fault
    async with client_of(provider, max_tries=2, idle_timeout_s=0.1) as transport:
        answered, body = await ask(transport, route)

    message = message_of(route, body)
    assert answered == status
    assert says in message
    assert provider.origin in message
    assert "2 tries" in message
    # A kept connection that closes is replaced unseen, so a try may have asked twice.
    assert 2 <= provider.counts.requests <= 4


@pytest.mark.parametrize("fault", [fault.values[0] for fault in FAULTS[:5]])
async def test_a_fault_that_passes_is_never_seen(provider: Provider, fault: Behaviour) -> None:
    provider.script(fault, fault)
    async with client_of(provider) as transport:
        status, body = await ask(transport)

    assert status == 200
    assert json.loads(body)["status"] == "completed"


@pytest.mark.parametrize("status", [429, 502, 503, 504, 529])
async def test_a_refusal_that_passes_is_never_seen(provider: Provider, status: int) -> None:
    provider.script(Behaviour(status=status, body=b"later"))
    async with client_of(provider) as transport:
        assert (await ask(transport))[0] == 200

    assert provider.counts.requests == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 413, 500])
async def test_other_errors_pass_at_once_and_unchanged(provider: Provider, status: int) -> None:
    provider.default = Behaviour(status=status, body=b'{"odd": "shape"}')
    async with client_of(provider) as transport:
        answered = await ask(transport)

    assert answered == (status, b'{"odd": "shape"}')
    assert provider.counts.requests == 1


async def test_an_answer_that_is_no_json_passes_as_it_is(provider: Provider) -> None:
    provider.default = Behaviour(body=b'{"cut": ')
    async with client_of(provider) as transport:
        assert await ask(transport) == (200, b'{"cut": ')


async def test_a_wait_that_was_asked_for_is_kept(provider: Provider) -> None:
    provider.script(rate_limited("0.3"))
    async with client_of(provider) as transport:
        began = time.monotonic()
        await ask(transport)

    assert 0.3 <= time.monotonic() - began < 2


async def test_a_wait_beyond_the_bounds_is_not_begun(provider: Provider) -> None:
    provider.default = rate_limited("3600")
    async with client_of(provider) as transport:
        status, body = await ask(transport)

    assert status == 429
    assert b"Slow down" in body
    assert provider.counts.requests == 1


async def test_a_refusal_that_never_ends_is_left_behind(provider: Provider) -> None:
    provider.script(Behaviour(status=503, hang="mid_body"))
    async with client_of(provider) as transport:
        assert (await ask(transport))[0] == 200

    assert provider.counts.cancelled == 1


@pytest.mark.parametrize("encoding", [None, "gzip", "br", "zstd"])
async def test_the_servers_key_never_leaves_in_an_error(
    provider: Provider, encoding: str | None
) -> None:
    fault = Behaviour(status=401, echo_key=True, encoding=encoding, headers=(("x-key", KEY),))  # type: ignore[arg-type]
    provider.default = fault
    async with client_of(provider) as transport:
        reply = await transport.send(Call("POST", ROUTES[0], list(JSON_HEADER), b"{}"))
        body = await reply.read()

    assert body == b'{"error":{"message":"Incorrect API key: ***"}}'
    headers = dict(reply.headers)
    assert headers[b"x-key"] == b"***"
    assert b"content-encoding" not in headers
    assert headers[b"content-length"] == b"%d" % len(body)


async def test_an_error_that_repeats_no_key_keeps_its_bytes(provider: Provider) -> None:
    provider.default = Behaviour(status=400, body=b"plain words", encoding="gzip")
    async with client_of(provider) as transport:
        reply = await transport.send(Call("POST", ROUTES[0], list(JSON_HEADER), b"{}"))
        body = await reply.read()

    assert (b"content-encoding", b"gzip") in reply.headers
    assert body.startswith(b"\x1f\x8b")


async def test_a_placeholder_key_is_no_secret(provider: Provider) -> None:
    provider.default = Behaviour(status=400, body=b"EMPTY messages")
    async with client_of(provider, api_key="EMPTY") as transport:
        assert (await ask(transport))[1] == b"EMPTY messages"


def facts_of(model_url: str, **settings: Any) -> tuple[InProcessTransport, CallFacts]:
    """Return a bare forwarder whose calls write into the facts."""
    facts = CallFacts()
    forward = model_in_front_of(model_url, **settings).forwarder.forward

    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        scope["extensions"][CALL_FACTS] = facts
        await forward(scope, receive, send)

    return InProcessTransport(app), facts


async def test_capture_is_told_of_every_try(provider: Provider) -> None:
    provider.script(Behaviour(reset="before_head"), rate_limited("0.01"))
    transport, facts = facts_of(provider.origin)
    began = time.time()
    await (await transport.send(Call("POST", ROUTES[0], [], b"{}"))).read()

    assert facts.source == "upstream"
    assert facts.local_reason is None
    assert facts.attempts[0].status is None
    assert str(facts.attempts[0].error).startswith("ConnectionLost: http://127.0.0.1")
    assert facts.attempts[1].status == 429
    assert (facts.attempts[2].status, facts.attempts[2].error) == (200, None)
    assert all(0 <= (attempt.ms or -1) < 5000 for attempt in facts.attempts)
    assert all(began <= attempt.started_at <= time.time() for attempt in facts.attempts)


async def test_capture_is_told_of_a_kept_connection_that_was_replaced(provider: Provider) -> None:
    transport, facts = facts_of(provider.origin)
    await (await transport.send(Call("POST", ROUTES[0], [], b"{}"))).read()
    provider.script(Behaviour(reset="before_head"))
    await (await transport.send(Call("POST", ROUTES[0], [], b"{}"))).read()

    assert [attempt.status for attempt in facts.attempts] == [200, 200]
    assert facts.notes == {"connections_replaced": 1}


async def test_capture_is_told_why_this_server_answered(provider: Provider) -> None:
    provider.default = Behaviour(close="mid_body", body=b'{"the bytes": "that came", "x": 1}')
    transport, facts = facts_of(provider.origin, max_tries=1)
    await (await transport.send(Call("POST", ROUTES[0], [], b"{}"))).read()

    assert facts.source == "local"
    assert facts.local_reason == "upstream_connection_lost"
    assert facts.error_category == "connection"
    assert facts.notes == {"upstream_body": '{"the bytes": "th'}


async def test_capture_is_told_of_a_timeout(provider: Provider) -> None:
    provider.default = Behaviour(hang="before_head")
    transport, facts = facts_of(provider.origin, max_tries=1, idle_timeout_s=0.05)
    await (await transport.send(Call("POST", ROUTES[0], [], b"{}"))).read()

    assert (facts.local_reason, facts.error_category) == ("upstream_timeout", "timeout")


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("POST", "/v1/v1/responses", 404, "/v1 twice"),
        ("POST", "/v1/responses/..%2fchat%2fcompletions", 400, "an encoded slash or a dot segment"),
        ("POST", "/v1/responses/../chat/completions", 400, "an encoded slash or a dot segment"),
        ("POST", "/v1/models/%2E%2e%2Fresponses", 400, "an encoded slash or a dot segment"),
        ("POST", "/v1/messages/a%5c..%5cb", 400, "an encoded slash or a dot segment"),
        ("POST", "/responses", 404, "put /v1 at the end of the client's base URL"),
        ("POST", "/chat/completions", 404, "put /v1 at the end"),
        ("POST", "/v1/%63hat/completions", 400, "another spelling of a model route"),
        ("POST", "/v1/Chat/Completions", 400, "another spelling of a model route"),
        ("POST", "/v1/messages;a=b", 400, "another spelling of a model route"),
        ("POST", "/v1/files/..%253b/..%25252fresponses", 400, "a dot segment"),
        ("POST", "/v1/x/%2e%2e;/responses", 400, "a dot segment"),
        ("GET", "/v1/responses", 405, "takes POST"),
    ],
)
async def test_a_wrong_path_is_explained(
    provider: Provider, method: str, path: str, status: int, says: str
) -> None:
    async with client_of(provider) as transport:
        reply = await transport.send(Call(method, path))
        body = json.loads(await reply.read())

    assert reply.status == status
    assert says in body["error"]["message"]
    assert provider.counts.requests == 0


@pytest.mark.parametrize(
    ("encoding", "status", "says"),
    [
        (b"gzip", 400, "cannot be unpacked: not gzip"),
        (b"compress", 415, "known are br, deflate, gzip, identity, x-gzip, zstd"),
    ],
)
async def test_a_request_that_cannot_be_unpacked_is_refused(
    provider: Provider, encoding: bytes, status: int, says: str
) -> None:
    async with client_of(provider) as transport:
        headers = [(b"content-encoding", encoding)]
        reply = await transport.send(Call("POST", ROUTES[2], headers, b"not packed"))

        assert reply.status == status
        assert says in message_of(ROUTES[2], await reply.read())


async def test_a_provider_that_is_away_at_the_start_is_said_in_one_line() -> None:
    async with serve_provider() as provider:
        assert await model_in_front_of(provider.origin).provider_problem() is None
    problem = await model_in_front_of(provider.origin).provider_problem()

    assert problem is not None
    assert problem.what == (
        f"policy_model: the provider does not answer: {provider.origin}: Connection refused"
    )
    assert problem.where == "policy_model.base_url"
    assert "start the provider" in str(problem.mend)


async def test_a_key_refused_at_the_start_is_said_in_one_line() -> None:
    async def refusing(connection: Connection) -> None:
        await connection.request()
        await connection.say(head_and_body(b"{}", "401 Unauthorized"))

    async with serve_wire(refusing) as upstream:
        problem = await model_in_front_of(upstream.origin).provider_problem()

    assert problem is not None
    assert problem.what == f"policy_model: the provider at {upstream.origin} refuses the key (401)"
    assert problem.where == "policy_model.api_key"
    assert "policy_api_key" in str(problem.mend)
    assert "start the provider" not in str(problem.mend)


async def test_code_that_calls_the_methods_gets_the_providers_error(provider: Provider) -> None:
    provider.script(unauthorised(), Behaviour(reset="before_head"))
    model = model_in_front_of(provider.origin, max_tries=1)
    with pytest.raises(CallFailed) as refused:
        await model.responses({})
    with pytest.raises(ConnectionLost):
        await model_in_front_of(provider.origin, max_tries=1).chat_completions({})
    await model.forwarder.aclose()

    assert (refused.value.status, refused.value.server_kind) == (401, "responses_api_models")
    assert refused.value.body == '{"error":{"message":"Incorrect API key: ***"}}'
