"""What the forwarder changes in a request, and what it leaves alone."""

import asyncio
import gzip
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard
from starlette.types import Message

from nemo_gym.errors import ConfigMistake
from nemo_gym.servers.forward import Forwarder
from nemo_gym.servers.forward_body import BodyTooLarge, Members, decoded
from nemo_gym.servers.forward_headers import HeaderRule, header, response_headers
from nemo_gym.servers.forward_replicas import Replica
from nemo_gym.servers.forward_tries import ProviderCaller, Unanswered
from nemo_gym.servers.provider import Key, Provider, ProviderConfig
from nemo_gym.transport.address import parse_address
from nemo_gym.transport.base import Call, RawHeaders
from nemo_gym.transport.fake import FakeReply, FakeTransport
from nemo_gym.transport.retry import RetryRule
from nemo_gym.wire.dialects import CHAT, MESSAGES
from support.meters import metering

SET_MODEL = Members({"model": b'"ours"'})
ADDRESS = parse_address("http://h")
GONE: Message = {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (b'{"model":"theirs"}', b'{"model":"ours"}'),
        (b'{"input":"x","model":"theirs","n":1}', b'{"input":"x","model":"ours","n":1}'),
        (b'{"input":"x"}', b'{"input":"x","model":"ours"}'),
        (b'{"model":null}', b'{"model":"ours"}'),
        (b'{"model":{"odd":[1]}}', b'{"model":"ours"}'),
        (b"{}", b'{"model":"ours"}'),
        (b' {\n "a" : 1.0 } ', b'{"a":1.0,"model":"ours"}'),
        (b'{"tools":[{"model":"a"}]}', b'{"tools":[{"model":"a"}],"model":"ours"}'),
        (b'{"x":"\\"model\\":1"}', b'{"x":"\\"model\\":1","model":"ours"}'),
        (b'{"\\u006dodel":"theirs"}', b'{"model":"ours"}'),
        (b'{"n":123456789012345678901234567890}', None),
        (b'{"t":1e0,"z":-0.0,"s":"\\u00e9\xc3\xa9\\/"}', None),
    ],
)
def test_the_model_is_set_and_every_other_value_keeps_its_bytes(
    body: bytes, sent: bytes | None
) -> None:
    expected = body[:-1] + b',"model":"ours"}' if sent is None else sent

    assert SET_MODEL.put_into(body) == expected


@pytest.mark.parametrize("body", [b"", b"[1]", b'"x"', b"{", b'{"a":}', b"\xff\xfe", b"null"])
def test_what_is_no_json_object_is_for_the_provider_to_judge(body: bytes) -> None:
    assert SET_MODEL.put_into(body) == body


@pytest.mark.parametrize("depth", [970, 990, 1010, 1100, 100_000])
@pytest.mark.parametrize("before", [b"", b'"n":NaN,'])
def test_what_is_nested_too_deeply_is_for_the_provider_to_judge(depth: int, before: bytes) -> None:
    body = b'{"model":"theirs",%b"x":%b%b}' % (before, b"[" * depth, b"]" * depth)

    sent = SET_MODEL.put_into(body)

    assert sent in (body, body.replace(b"theirs", b"ours"))


def test_what_only_python_takes_for_json_gets_its_model_too() -> None:
    assert SET_MODEL.put_into(b'{"x": NaN}') == b'{"x":NaN,"model":"ours"}'
    assert SET_MODEL.put_into(b'{"x": "\\ud800"}') == b'{"x":"\\ud800","model":"ours"}'


def test_defaults_give_way_to_the_client_and_settings_do_not() -> None:
    members = Members({"seed": b"7"}, {"temperature": b"0.5", "top_p": b"1"})

    sent = members.put_into(b'{"temperature":1,"seed":1}')

    assert sent == b'{"temperature":1,"top_p":1,"seed":7}'


def test_nothing_to_set_leaves_the_body_alone() -> None:
    body = b' {"a" :1} '

    assert Members().put_into(body) is body


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "br": brotli.compress,
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
    "deflate": zlib.compress,
    "identity": bytes,
}
PLAIN = b'{"messages": [' + b'{"role": "user"},' * 5000


@pytest.mark.parametrize("encoding", PACKERS)
def test_every_encoding_is_unpacked_within_its_limit(encoding: str) -> None:
    packed = PACKERS[encoding](PLAIN)

    assert decoded(packed, encoding.upper(), len(PLAIN)) == PLAIN
    with pytest.raises(BodyTooLarge):
        decoded(packed, encoding, len(PLAIN) - 1)


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate"])
@pytest.mark.parametrize("damage", ["cut", "scrambled", "empty"])
def test_a_damaged_body_is_an_error_and_never_half_a_body(encoding: str, damage: str) -> None:
    packed = PACKERS[encoding](PLAIN)
    broken = {"cut": packed[:-5], "scrambled": b"\x07" + packed[1:], "empty": b""}[damage]

    if not (encoding == "gzip" and damage == "empty"):  # nothing at all is an empty gzip file
        with pytest.raises(ValueError, match=r"not (gzip|brotli|zstd|deflate)"):
            decoded(broken, encoding, 1 << 20)


def test_a_deflate_body_may_come_without_its_header() -> None:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)

    assert decoded(packer.compress(PLAIN) + packer.flush(), "deflate", 1 << 20) == PLAIN


def test_encodings_on_top_of_each_other_come_off_in_turn() -> None:
    assert decoded(gzip.compress(PACKERS["zstd"](PLAIN)), "zstd, gzip", 1 << 20) == PLAIN


def test_all_frames_of_a_body_are_unpacked_and_nothing_may_follow_its_end() -> None:
    pack = PACKERS["zstd"]

    assert decoded(pack(PLAIN) + pack(b"more"), "zstd", 1 << 20) == PLAIN + b"more"
    with pytest.raises(BodyTooLarge):
        decoded(pack(PLAIN) + pack(b"more"), "zstd", len(PLAIN) + 3)
    for encoding in ("br", "zstd", "deflate"):
        with pytest.raises(ValueError, match=r"not (brotli|zstd|deflate)"):
            decoded(PACKERS[encoding](PLAIN) + b"more", encoding, 1 << 20)


def test_a_bomb_is_never_unpacked() -> None:
    bomb = PACKERS["zstd"](bytes(1 << 28))

    with pytest.raises(BodyTooLarge):
        decoded(bomb, "zstd", 1000)


def provider(key: Key | None = None, headers: dict[str, str] | None = None) -> Provider:
    return Provider((ADDRESS,), ("chat",), key, headers=headers or {})


CLIENT: RawHeaders = [
    (b"host", b"127.0.0.1:1"),
    (b"connection", b"keep-alive, X-Hop"),
    (b"x-hop", b"1"),
    (b"te", b"trailers"),
    (b"transfer-encoding", b"chunked"),
    (b"content-length", b"3"),
    (b"authorization", b"Bearer theirs"),
    (b"x-api-key", b"theirs"),
    (b"accept-encoding", b"gzip, br"),
    (b"anthropic-beta", b"new-thing"),
    (b"cookie", b"ng_mcqa=state; other=1"),
    (b"x-stainless-lang", b"python"),
]
PASSING: RawHeaders = [
    (b"accept-encoding", b"gzip, br"),
    (b"anthropic-beta", b"new-thing"),
    (b"cookie", b"other=1"),
    (b"x-stainless-lang", b"python"),
]


def test_headers_pass_but_for_the_hops_and_the_credentials() -> None:
    bearer = HeaderRule(provider(Key.bearer("ours")), ADDRESS).headers(CLIENT, messages=False)
    x_api_key = HeaderRule(provider(Key.x_api_key("ours")), ADDRESS).headers(CLIENT, messages=False)

    assert bearer == [*PASSING, (b"authorization", b"Bearer ours")]
    assert x_api_key == [*PASSING, (b"x-api-key", b"ours")]


def test_without_a_key_of_its_own_the_server_passes_the_clients() -> None:
    sent = HeaderRule(provider(), ADDRESS).headers(CLIENT, messages=False)

    assert (b"authorization", b"Bearer theirs") in sent
    assert (b"x-api-key", b"theirs") in sent


def test_a_user_in_the_url_takes_the_place_of_the_clients_credentials() -> None:
    address = parse_address("http://user:word@h")

    sent = HeaderRule(provider(), address).headers(CLIENT, messages=False)

    assert [value for name, value in sent if name == b"authorization"] == [b"Basic dXNlcjp3b3Jk"]


def test_messages_names_a_version_unless_the_client_does() -> None:
    without = HeaderRule(provider(), ADDRESS).headers([], messages=True)
    named = [(b"anthropic-version", b"2099-01-01")]

    assert without == [(b"anthropic-version", b"2023-06-01")]
    assert HeaderRule(provider(), ADDRESS).headers(named, messages=True) == named


def test_headers_of_the_settings_replace_the_clients() -> None:
    rule = HeaderRule(provider(headers={"User-Agent": "ours"}), ADDRESS)

    assert rule.headers([(b"user-agent", b"theirs")], messages=False) == [(b"user-agent", b"ours")]


@pytest.mark.parametrize("client", [[], [(b"anthropic-version", b"2099-01-01")]])
def test_a_version_of_the_settings_is_the_only_one(client: RawHeaders) -> None:
    rule = HeaderRule(provider(headers={"Anthropic-Version": "2024-01-01"}), ADDRESS)

    assert rule.headers(client, messages=True) == [(b"anthropic-version", b"2024-01-01")]


def test_an_answer_passes_but_for_the_hops_and_the_date() -> None:
    answer: RawHeaders = [
        (b"date", b"today"),
        (b"connection", b"close, X-Hop"),
        (b"x-hop", b"1"),
        (b"transfer-encoding", b"chunked"),
        (b"content-type", b"text/event-stream"),
        (b"x-request-id", b"req_1"),
        (b"retry-after", b"3"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
    ]

    assert response_headers(answer) == answer[4:]


@pytest.mark.parametrize("secret", [None, "", "  \n"])
def test_an_empty_key_is_no_key(secret: str | None) -> None:
    assert Key.bearer(secret) is None
    assert Key.x_api_key(secret) is None


def test_a_line_break_around_a_key_is_not_sent() -> None:
    key = Key.bearer(" sk-1234\n")

    assert key is not None
    assert key.value == b"Bearer sk-1234"


@pytest.mark.parametrize("url", ["localhost:8000", "http://", []])
def test_a_base_url_that_cannot_be_used_is_a_mistake_of_the_configuration(
    url: str | list[str],
) -> None:
    with pytest.raises(ConfigMistake, match="the base URL of policy_model cannot be used"):
        ProviderConfig(name="policy_model").provider(url, ("chat",), model=None, key=None)


class _Settings(ProviderConfig):
    some_api_key: str | None = None


@pytest.mark.parametrize("secret", ["sk-first\nlast", "sk-first\x1blast", "sk-first\udcfflast"])
def test_a_key_that_cannot_be_sent_is_a_mistake_at_start_and_not_shown(secret: str) -> None:
    settings = _Settings(name="policy_model")
    with pytest.raises(ConfigMistake, match="the key of policy_model holds") as caught:
        settings.provider("http://h", ("chat",), model=None, key=Key.bearer(secret))

    assert caught.value.where == "policy_model.some_api_key"
    assert "first" not in str(caught.value)
    assert "last" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("x-a", "planted\nx-b: c"), ("x-a", "planted\u2026"), ("x a", "planted"), ("", "planted")],
)
def test_a_header_that_cannot_be_sent_is_a_mistake_at_start(name: str, value: str) -> None:
    settings = ProviderConfig(name="policy_model", extra_headers={"x-ok": "a\tb\xe9", name: value})
    with pytest.raises(ConfigMistake, match="cannot be sent") as caught:
        settings.provider("http://h", ("chat",), model=None, key=None)

    assert caught.value.where == "policy_model.extra_headers"
    assert "planted" not in str(caught.value)


async def test_a_client_that_leaves_while_it_asks_costs_the_provider_nothing() -> None:
    upstream = FakeTransport()
    messages = iter([{"type": "http.request", "body": b"{", "more_body": True}, GONE])

    async def receive() -> Message:
        return next(messages)

    async def send(_message: Message) -> None:
        raise AssertionError("nobody is there")

    forwarder = Forwarder(provider(), transports=[upstream])
    scope = {"type": "http", "method": "POST", "raw_path": b"/v1/chat/completions"}
    await forwarder.forward({**scope, "query_string": b"", "headers": []}, receive, send)

    assert upstream.calls == []


def test_whatever_headers_a_provider_is_sent_are_secret_but_for_what_everyone_sends() -> None:
    headers = {
        "X-My-Auth": "planted-1",
        "Helicone-Auth": "Bearer planted-2",
        "Accept": "text/plain",
    }
    provider = Provider((ADDRESS,), ("responses",), headers=headers)

    assert provider.secrets == {"planted-1", "Bearer planted-2", "planted-2"}


@pytest.mark.parametrize("status", [42, 199, 600])
async def test_a_status_that_no_server_can_pass_on_is_no_answer(status: int) -> None:
    reply = FakeReply(status, [], [b"{}"])

    with pytest.raises(Unanswered, match=f"its status is {status}"):
        await ProviderCaller(RetryRule()).ask([(FakeTransport(reply), Call("POST", "/x"))])


async def test_a_query_is_passed_on_and_what_the_address_has_beside_it() -> None:
    replica = Replica(provider(), parse_address("http://h/base/v2?key=1"), FakeTransport())

    assert replica.target(b"/v1/messages", b"") == "/base/v2/messages?key=1"
    assert replica.target(b"/v1/messages", b"beta=true") == "/base/v2/messages?key=1&beta=true"
    assert replica.target(b"/v1/models", b"") == "/base/v2/models?key=1"


async def test_a_call_of_no_rollout_goes_where_the_least_is_under_way() -> None:
    may_answer = asyncio.Event()

    class Slow(FakeTransport):
        async def send(self, call: Call) -> FakeReply:
            await may_answer.wait()
            return await super().send(call)

    addresses = (ADDRESS, parse_address("http://i"))
    slow, quick = Slow(), FakeTransport()
    forwarder = Forwarder(Provider(addresses, ("chat",)), transports=[slow, quick])
    first = asyncio.create_task(forwarder.fetch(CHAT, b"{}"))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        for _ in range(3):
            await forwarder.fetch(CHAT, b"{}")
    may_answer.set()
    await first

    assert (len(slow.calls), len(quick.calls)) == (1, 3)


async def test_a_version_goes_with_messages_alone_and_a_call_is_named_by_its_dialect() -> None:
    members = Members({"model": b'"ours"'})
    both = Provider((ADDRESS,), ("chat", "messages"), members=members)
    upstream = FakeTransport()
    forwarder = Forwarder(both, transports=[upstream])

    with metering() as metered:
        for dialect in (CHAT, MESSAGES, CHAT):
            await forwarder.fetch(dialect, b"{}")
        counted = metered.exporting.recorded.model_duration.read()

    versions = [header(call.headers, b"anthropic-version") for call in upstream.calls]
    assert versions == [None, b"2023-06-01", None]
    assert {labels["gen_ai.provider.name"]: held.count for labels, held in counted} == {
        "openai": 2,
        "anthropic": 1,
    }
