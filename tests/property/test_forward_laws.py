"""Laws of forwarding: values survive, bytes pass whatever the chunking."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym.errors import ConnectionLost
from nemo_gym.servers.forward import Forwarder
from nemo_gym.servers.forward_body import Members
from nemo_gym.servers.provider import Provider
from nemo_gym.transport.address import parse_address
from nemo_gym.transport.base import Call
from nemo_gym.transport.fake import FakeReply, FakeTransport
from nemo_gym.transport.in_process import InProcessTransport
from nemo_gym.transport.retry import RetryRule

texts = st.text(max_size=20) | st.sampled_from(["model", '"model"', "\\", "\ud7ff", "é"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, values, max_size=6)
separators = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t: ")])


@given(objects, separators, st.booleans(), texts)
def test_setting_a_member_is_what_a_json_library_would_make_of_it(
    body: dict[str, object], separator: tuple[str, str], ascii_only: bool, model: str
) -> None:
    raw = json.dumps(body, separators=separator, ensure_ascii=ascii_only)
    members = Members({"model": json.dumps(model).encode()}, {"é": b"[1]"})

    sent = members.put_into(raw.encode())

    assert json.loads(sent) == {"é": [1], **body, "model": model}


@given(st.binary(max_size=60))
def test_any_bytes_at_all_are_passed_or_set_but_never_lost(body: bytes) -> None:
    sent = Members({"model": b'"m"'}).put_into(body)

    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if isinstance(value, dict):
        assert json.loads(sent)["model"] == "m"
    else:
        assert sent == body


def forwarding(reply: FakeReply) -> InProcessTransport:
    provider = Provider((parse_address("http://provider"),), ("chat",), retry=RetryRule(tries=1))
    return InProcessTransport(Forwarder(provider, transports=[FakeTransport(reply)]).forward)


CALL = Call("POST", "/v1/chat/completions", [], b"{}")
statuses = st.sampled_from([200, 201, 400, 404, 429, 500, 503])
types = st.sampled_from([b"text/event-stream", b"application/json", b"application/octet-stream"])
pieces = st.lists(st.binary(min_size=1, max_size=30), max_size=8)


@given(statuses, types, pieces)
async def test_status_headers_and_bytes_pass_whatever_the_chunking(
    status: int, content_type: bytes, body: list[bytes]
) -> None:
    headers = [(b"content-type", content_type), (b"x-request-id", b"r")]

    reply = await forwarding(FakeReply(status, headers, body)).send(CALL)

    assert (reply.status, reply.headers) == (status, headers)
    assert await reply.read() == b"".join(body)


@given(pieces)
async def test_events_pass_one_by_one(body: list[bytes]) -> None:
    headers = [(b"content-type", b"text/event-stream")]
    reply = await forwarding(FakeReply(200, headers, body)).send(CALL)
    came = []
    while piece := await reply.chunk():
        came.append(piece)

    assert came == body


@settings(max_examples=50)
@given(pieces.filter(bool))
async def test_a_broken_stream_is_never_an_orderly_end(body: list[bytes]) -> None:
    headers = [(b"content-type", b"text/event-stream")]
    broken = FakeReply(200, headers, body, ConnectionLost("gone", response_started=True))
    reply = await forwarding(broken).send(CALL)
    came = b""
    try:
        while piece := await reply.chunk():
            came += piece
    except ConnectionLost:
        pass
    else:
        raise AssertionError("the stream ended as if it were whole")

    assert came == b"".join(body)
