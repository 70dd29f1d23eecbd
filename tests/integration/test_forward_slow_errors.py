"""Errors that cannot pass as they are: slow ones with our key, statuses that HTTP lacks."""

import json

import pytest

from nemo_gym.capture.facts import CALL_FACTS, CallFacts
from nemo_gym.errors import CallTimeout
from nemo_gym.servers.forward import Forwarder
from nemo_gym.servers.forward_tries import ProviderCaller
from nemo_gym.servers.provider import Key, Provider
from nemo_gym.transport.address import parse_address
from nemo_gym.transport.base import Call
from nemo_gym.transport.fake import FakeReply, FakeTransport
from nemo_gym.transport.http import HttpTransport
from nemo_gym.transport.in_process import InProcessTransport
from nemo_gym.transport.retry import RetryRule
from support.model_server import KEY, serve_model
from support.provider import Behaviour, serve_provider
from support.wire_server import Connection, head_and_body, serve_wire

_ROUTE = "/v1/chat/completions"


def _in_front_of(origin: str, caller: ProviderCaller, **settings: FakeTransport) -> Forwarder:
    provider = Provider((parse_address(origin),), ("chat",), Key.bearer(KEY))
    transports = list(settings.values()) or None
    return Forwarder(provider, transports=transports, caller=caller)


async def _ask(forwarder: Forwarder) -> tuple[int, str]:
    transport = InProcessTransport(forwarder.forward)
    reply = await transport.send(Call("POST", _ROUTE, [], b"{}"))
    body = await reply.read()
    await forwarder.aclose()
    return reply.status, body.decode()


@pytest.mark.parametrize("encoding", [None, "gzip"])
async def test_a_key_that_comes_in_pieces_over_time_never_leaves(encoding: str | None) -> None:
    slow = Behaviour(status=401, echo_key=True, encoding=encoding, piece_size=28, piece_delay_s=0.7)  # type: ignore[arg-type]
    async with serve_provider() as provider:
        provider.default = slow
        async with serve_model(provider.origin) as served:
            transport = HttpTransport(served.origin)
            reply = await transport.send(Call("POST", _ROUTE, [], b"{}"))
            body = await reply.read()
            await transport.aclose()

    assert reply.status == 401
    assert body == b'{"error":{"message":"Incorrect API key: ***"}}'


async def test_an_error_without_an_end_is_cut_and_says_so() -> None:
    async with serve_provider() as provider:
        half = f"no: {KEY}, so {KEY[:9]}".encode()
        provider.default = Behaviour(status=401, body=half + bytes(len(half)), hang="mid_body")
        caller = ProviderCaller(RetryRule(tries=1), held_s=0.05)
        status, body = await _ask(_in_front_of(provider.origin, caller))

    message = json.loads(body)["error"]["message"]
    assert status == 401
    assert "the end of its error did not come in time; it began: no: ***, so" in message
    assert KEY[:5] not in message


async def test_an_error_of_any_size_is_held_only_up_to_a_bound() -> None:
    fake = FakeTransport(FakeReply(400, [], [b"x" * (1 << 20), KEY[:5].encode(), KEY[5:].encode()]))
    caller = ProviderCaller(RetryRule(tries=1), held_bytes=(1 << 20) + 5)
    status, body = await _ask(_in_front_of("http://h", caller, fake=fake))

    assert status == 400
    assert json.loads(body)["error"]["message"].endswith("x" * 50)


async def test_an_error_that_breaks_off_is_told_in_the_dialect_of_the_client() -> None:
    broken = FakeReply(400, [], [b"some words"], CallTimeout("http://h was silent for 1 s"))
    caller = ProviderCaller(RetryRule(tries=1))
    status, body = await _ask(_in_front_of("http://h", caller, fake=FakeTransport(broken)))

    assert status == 504
    assert json.loads(body)["error"]["code"] == "upstream_timeout"


@pytest.mark.parametrize("status", [99, 600, 799, 999])
@pytest.mark.parametrize("route", ["/v1/responses", "/v1/chat/completions", "/v1/messages"])
async def test_a_status_that_http_does_not_have_is_told_as_a_bad_gateway(
    status: int, route: str
) -> None:
    async def odd(connection: Connection) -> None:
        await connection.request()
        await connection.say(head_and_body(KEY.encode(), f"{status:03d} Odd"))

    async with serve_wire(odd) as upstream, serve_model(upstream.origin) as served:
        transport = HttpTransport(served.origin)
        reply = await transport.send(Call("POST", route, [], b"{}"))
        body = await reply.read()
        await transport.aclose()

    assert reply.status == 502
    assert f"its status is {status}, which is none of HTTP" in json.loads(body)["error"]["message"]
    assert KEY.encode() not in body


async def test_capture_is_told_of_a_status_that_http_does_not_have() -> None:
    facts = CallFacts()
    fake = FakeTransport(FakeReply(799, [], [b"some words"]))
    forwarder = _in_front_of("http://h", ProviderCaller(RetryRule(tries=3)), fake=fake)

    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        scope["extensions"][CALL_FACTS] = facts
        await forwarder.forward(scope, receive, send)

    await (await InProcessTransport(app).send(Call("POST", _ROUTE, [], b"{}"))).read()

    assert (facts.source, facts.local_reason) == ("local", "upstream_reply_invalid")
    assert facts.error_category == "connection"
    assert [attempt.status for attempt in facts.attempts] == [799]
    assert facts.notes["upstream_body"] == "some words"
