"""The server's key is in no answer, whatever its status and however it comes; the rest is."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.capture.facts import CallFacts
from nemo_gym.servers.forward_errors import freed
from nemo_gym.servers.provider import Key, Provider
from nemo_gym.transport.address import parse_address
from nemo_gym.transport.base import RawHeaders
from nemo_gym.wire.dialects import CHAT

KEY = "sk-Planted/0123456789"
PROVIDER = Provider(
    (parse_address("http://someone:pass-word-1@h/v1?sig=url-sig-2"),),
    ("chat",),
    Key.bearer(KEY),
    headers={"x-model": "gpt-4o-mini", "x-team-key": "team-key-3"},
)
JSON: RawHeaders = [(b"content-type", b"application/json")]


def _whole(
    body: bytes, status: int = 200, headers: RawHeaders = JSON, provider: Provider = PROVIDER
) -> tuple[RawHeaders, bytes, CallFacts]:
    facts = CallFacts()
    length = [(b"content-length", b"%d" % len(body))]
    head, sent, passing = freed(
        status, [*headers, *length], body, provider, CHAT, whole=True, facts=facts
    )
    assert passing is None
    assert dict(head)[b"content-length"] == b"%d" % len(sent)
    return head, sent, facts


def _in_pieces(
    pieces: list[bytes], status: int = 200, headers: RawHeaders = JSON
) -> tuple[bytes, CallFacts]:
    facts = CallFacts()
    _, sent, passing = freed(status, headers, pieces[0], PROVIDER, CHAT, whole=False, facts=facts)
    assert passing is not None
    rest = pieces[1:]
    for number, piece in enumerate(rest):
        sent += passing.passed(piece, number == len(rest) - 1)
    return sent, facts


def _split(body: bytes, size: int) -> list[bytes]:
    return [*(body[at : at + size] for at in range(0, len(body), size)), b""]


@pytest.mark.parametrize("secret", [KEY, "pass-word-1", "url-sig-2", "team-key-3"])
@pytest.mark.parametrize("status", [200, 302])
def test_a_whole_answer_that_repeats_a_key_is_freed_of_it(secret: str, status: int) -> None:
    _, sent, facts = _whole(json.dumps({"echo": f"Bearer {secret}"}).encode(), status)

    assert json.loads(sent) == {"echo": "Bearer ***"}
    assert facts.notes == {"hidden": 1}


@pytest.mark.parametrize("escaped", [rb"sk-Planted\/0123456789", rb"sk\u002dPlanted%2f0123456789"])
def test_a_key_that_an_error_in_a_success_escapes_is_found(escaped: bytes) -> None:
    _, sent, _ = _whole(b'{"error":{"message":"bad ' + escaped + b'"}}')

    assert json.loads(sent) == {"error": {"message": "bad ***"}}


def test_a_small_packed_error_in_a_success_is_looked_into() -> None:
    packed = gzip.compress(json.dumps({"error": KEY}).encode())
    head, sent, _ = _whole(packed, headers=[*JSON, (b"content-encoding", b"gzip")])

    assert sent == b'{"error": "***"}'
    assert b"content-encoding" not in dict(head)


def test_a_place_that_names_the_key_is_told_without_it() -> None:
    place = [(b"location", b"http://h/?sig=url-sig-2")]

    head, _, _ = _whole(b"", 302, headers=place)

    assert dict(head)[b"location"] == b"http://h/?sig=***"


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"gpt-4o-mini","error":null,"text":"ollama"}',
        b'{"object":"response","error": null}',
        b"\x1f\x8b no gzip",
        b"",
        "é".encode(),
        b"\xff\xfe",
    ],
)
def test_an_answer_without_a_key_passes_as_it_came(body: bytes) -> None:
    headers = [*JSON, (b"x-any", b"1")]

    head, sent, facts = _whole(body, headers=headers)

    assert sent == body
    assert head == [*headers, (b"content-length", b"%d" % len(body))]
    assert facts.notes == {}


@pytest.mark.parametrize("word", ["ollama", "message", "EMPTY", "sk-no-key", "not-needed"])
def test_a_placeholder_of_a_key_changes_no_success_and_no_structure(word: str) -> None:
    provider = Provider((parse_address("http://h"),), ("chat",), Key.bearer(word))
    answer = {"message": {"type": "message", "content": f"use {word}"}}
    body = json.dumps(answer).encode()

    assert _whole(body, provider=provider)[1] == body
    assert json.loads(_whole(body, 400, provider=provider)[1]).keys() == answer.keys()


def test_an_error_packed_twice_by_two_header_lines_is_looked_into() -> None:
    packed = gzip.compress(gzip.compress(json.dumps({"error": f"bad {KEY}"}).encode()))
    twice = [(b"content-encoding", b"gzip")] * 2

    head, sent, facts = _whole(packed, 401, headers=[*JSON, *twice])

    assert sent == b'{"error": "bad ***"}'
    assert b"content-encoding" not in dict(head)
    assert facts.notes == {"hidden": 1}


@given(st.integers(1, 60), st.sampled_from(["\n", "\r\n"]))
def test_an_error_in_a_stream_is_freed_of_the_key_however_it_is_cut(size: int, end: str) -> None:
    before = f'data: {{"choices":[{{"delta":{{"content":"x"}}}}]}}{end}{end}' * 3
    error = f'event: error{end}data: {{"type":"error","error":"bad %s"}}{end}{end}'
    body = (before + error % KEY + before).encode()

    sent, facts = _in_pieces(_split(body, size))

    assert sent == (before + error % "***" + before).encode()
    assert facts.notes == {"hidden": 1}


@given(st.integers(1, 40))
def test_a_body_of_a_declared_length_keeps_it(size: int) -> None:
    body = json.dumps({"error": {"message": f"bad {KEY}, {KEY}"}, "n": 1}).encode()
    headers = [*JSON, (b"content-length", b"%d" % len(body))]

    sent, _ = _in_pieces(_split(body, size), headers=headers)

    assert len(sent) == len(body)
    assert KEY.encode() not in sent
    assert json.loads(sent)["n"] == 1


@pytest.mark.parametrize(
    "event",
    [
        b'event: error\ndata: {"message":"Bearer %b"}\n\n',
        b"event: error\ndata: no such key: %b\n\n",
        b'data: {"detail":"Bearer %b"}\n\n',
    ],
)
def test_a_key_in_one_piece_is_found_whatever_that_says(event: bytes) -> None:
    before, after = b'data: {"choices":[]}\n\n', b"data: [DONE]\n\n"

    sent, facts = _in_pieces([before, event % KEY.encode(), after, b""])

    assert sent == before + event % b"***" + after
    assert facts.notes["hidden"] == 1


def test_pieces_that_speak_of_no_error_pass_at_once() -> None:
    facts = CallFacts()
    _, _, passing = freed(200, JSON, b"", PROVIDER, CHAT, whole=False, facts=facts)
    assert passing is not None
    for piece in (b'data: {"error":null', b'}\n\ndata: {"a', b'":"\\"error\\""}\n\n', b'"err'):
        assert passing.passed(piece) == piece
    assert passing.passed(b'or":{') == b""
    assert passing.passed(b"}\n\n") == b'or":{}\n\n'
    assert passing.passed(b"x") == b"x"


@pytest.mark.parametrize("cut", range(len(KEY) + 1))
def test_what_was_kept_back_of_an_answer_that_broke_off_is_shown_without_the_key(cut: int) -> None:
    begun, facts = b'data: {"error":"bad key: ', CallFacts()
    _, sent, passing = freed(
        *(200, JSON, begun + KEY[:cut].encode(), PROVIDER, CHAT), whole=False, facts=facts
    )
    assert passing is not None

    # So few characters as begin any key tell nothing.
    rest = b"***" if cut > 3 else KEY[:cut].encode()
    assert sent + passing.broken_off() == begun + rest
    assert facts.notes == ({"hidden": 1} if cut > 3 else {})


def test_an_event_too_long_to_be_an_error_goes_on_and_holds_no_key() -> None:
    long = b'data: {"error":"' + b"x" * 100_000
    sent, _ = _in_pieces(_split(long + KEY.encode() + b'"}\n\n', 7001))

    assert sent == long + b'***"}\n\n'
