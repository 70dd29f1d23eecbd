"""Rows of calls that failed: no secret is in them, nothing else is changed, and both is told."""

import base64
import gzip
import json
from base64 import b64decode
from typing import Any

import pytest

from nemo_gym.capture.exchange import exchange_line
from nemo_gym.capture.facts import CallFacts
from nemo_gym.capture.tap import Headers, Tapped
from nemo_gym.wire.dialects import CHAT, RESPONSES, Dialect
from support.sse import chunk
from support.taps import JSON, SSE, Led

KEY = "sk-proj-Planted0123456789abcdef"
GZIP = [(b"content-encoding", b"gzip")]


def _stored(tapped: Tapped, facts: CallFacts | None = None) -> dict[str, Any]:
    line = exchange_line(tapped, facts, model_call_id="id1", model_ref_name="policy_model")
    stored: dict[str, Any] = json.loads(line)
    return stored


def _answered(
    body: bytes,
    *,
    status: int = 200,
    headers: Headers = JSON,
    key: str = KEY,
    cookie: str = "theme=dark",
    dialect: Dialect = CHAT,
    limit: int = 10**9,
    ended: bool = True,
) -> Tapped:
    sent = [(b"authorization", f"Bearer {key}".encode()), (b"cookie", cookie.encode())]
    led = Led(dialect, headers=sent, limit=limit)
    led.tap.request_body(b'{"model":"m"}')
    led.start(headers, status)
    led.send(body, more=not ended)
    return led.end(raised=not ended)


INCOMPLETE = (
    b'{"id":"r","object":"response","status":"incomplete","output":[{"type":"message",'
    b'"role":"assistant","content":[{"type":"output_text","text":"install ollama, a message"}]}]}'
)


@pytest.mark.parametrize("word", ["ollama", "message", "assistant", "output_text", "incomplete"])
@pytest.mark.parametrize("where", ["key", "cookie"])
def test_a_placeholder_of_a_credential_changes_nothing_that_a_model_said(
    word: str, where: str
) -> None:
    body = b"event: response.incomplete\ndata: " + (
        b'{"type":"response.incomplete","response":' + INCOMPLETE + b"}\n\n"
    )
    sent = {"key": word} if where == "key" else {"cookie": f"who={word}"}

    whole = _stored(_answered(INCOMPLETE, dialect=RESPONSES, **sent))  # type: ignore[arg-type]
    streamed = _stored(_answered(body, headers=SSE, dialect=RESPONSES, **sent))  # type: ignore[arg-type]

    assert whole["error_category"] == streamed["error_category"] == "incomplete"
    assert whole["response"] == streamed["response"] == json.loads(INCOMPLETE)
    assert streamed["response_raw"] == body.decode()
    assert "notes" not in whole
    assert "notes" not in streamed


def test_words_of_the_protocol_stand_whatever_a_client_calls_its_credentials() -> None:
    body = (
        b'{"id":"gpt-4o-mini","model":"gpt-4o-mini","error":{"type":"gpt-4o-mini",'
        b'"message":"no gpt-4o-mini"}}'
    )

    stored = _stored(_answered(body, status=404, cookie="m=gpt-4o-mini"))

    error = {"type": "gpt-4o-mini", "message": "no ***"}
    assert stored["response"] == {"id": "gpt-4o-mini", "model": "gpt-4o-mini", "error": error}
    assert stored["notes"] == {"hidden": 1}


def test_a_placeholder_is_hidden_in_the_texts_of_an_error_and_not_in_their_structure() -> None:
    body = b'{"message":{"type":"message","text":"your message"},"code":1.50}'

    line = exchange_line(
        _answered(body, status=400, key="message"), None, model_call_id="i", model_ref_name="p"
    )

    assert b'"response":{"message":{"type":"message","text":"your ***"},"code":1.50}' in line


def test_a_key_is_hidden_wherever_it_stands_and_the_row_says_so() -> None:
    body = json.dumps({KEY: [f"x {KEY}"], "n": 1}).encode()

    stored = _stored(_answered(body, status=401))

    assert stored["response"] == {"***": ["x ***"], "n": 1}
    assert stored["notes"] == {"hidden": 2}


def test_no_key_of_the_server_is_stored_even_under_a_word_of_the_protocol() -> None:
    facts = CallFacts(secrets=frozenset({KEY}), keys=frozenset({KEY}))
    body = json.dumps({"model": KEY}).encode()

    assert _stored(_answered(body, status=400, key="none"), facts)["response"] == {"model": "***"}


@pytest.mark.parametrize("cut", range(5, len(KEY) + 1))
def test_a_stream_that_breaks_off_within_a_key_keeps_nothing_of_it(cut: int) -> None:
    body = b'data: {"error":{"message":"bad key ' + KEY[:cut].encode()

    stored = _stored(_answered(body, headers=SSE, ended=False))

    assert stored["response_raw"] == 'data: {"error":{"message":"bad key ***'
    assert stored["notes"]["hidden"] == 1


@pytest.mark.parametrize("limit", range(40, 60))
def test_a_body_cut_at_the_limit_keeps_nothing_of_a_key(limit: int) -> None:
    body = b'{"error":{"message":"the key is no good: ' + KEY.encode() + b'"}}'

    stored = _stored(_answered(body, status=401, limit=limit))

    begun = any(stored["response_raw"].endswith(KEY[:n]) for n in range(4, len(KEY)))
    assert not begun
    assert stored["response_raw"].startswith('{"error":{"message":"the key is no')


@pytest.mark.parametrize("level", [0, 9])
@pytest.mark.parametrize("step", [1, 10**6])
def test_a_corrupt_body_is_kept_without_the_key_in_it(level: int, step: int) -> None:
    packed = bytearray(gzip.compress(b'{"error":"bad ' + KEY.encode() + b'"}', level))
    packed[-8] ^= 0xFF  # its checksum
    led = Led(headers=[(b"x-api-key", KEY.encode())])
    led.start([*JSON, *GZIP], 401)
    led.send_all(bytes(packed[at : at + step]) for at in range(0, len(packed), step))

    stored = _stored(led.end())

    assert b'{"error":"bad ***"}' in b64decode(stored["response_raw"])
    assert stored["notes"] == {"undecodable_body": ["response"], "hidden": 1}


@pytest.mark.parametrize("encoding", [b"gzip", b"br", b"snappy", b"gzip, br"])
def test_a_text_that_lies_about_its_encoding_is_kept_without_the_key(encoding: bytes) -> None:
    body = b'{"error":{"message":"bad ' + KEY.encode() + b'"}}'
    headers = [*JSON, (b"content-encoding", encoding)]

    stored = _stored(_answered(body, status=401, headers=headers))

    assert b64decode(stored["response_raw"]) == b'{"error":{"message":"bad ***"}}'


def test_a_packed_body_behind_an_unknown_encoding_is_unpacked_to_look_for_keys() -> None:
    body = gzip.compress(b'{"error":"' + KEY.encode() + b'"}')
    headers = [*JSON, (b"content-encoding", b"custom")]

    stored = _stored(_answered(body, status=401, headers=headers))

    assert b64decode(stored["response_raw"]) == b'{"error":"***"}'


def test_credentials_wrapped_in_base64_are_known() -> None:
    pair = base64.b64encode(b"someone:Planted-pass-1").decode()
    led = Led(headers=[(b"authorization", f"Basic {pair}".encode())])
    led.start(JSON, 401)
    led.send(json.dumps({"error": f"{pair} Planted-pass-1"}).encode(), more=False)

    assert _stored(led.end())["response"] == {"error": "*** ***"}


def test_the_key_of_the_server_is_looked_for_in_answers_that_nobody_searched() -> None:
    packed = gzip.compress(b'{"choices":[],"echo":"' + KEY.encode() + b'"}')
    facts = CallFacts(keys=frozenset({KEY}), unsearched=True)

    stored = _stored(_answered(packed, headers=[*JSON, *GZIP], key="none"), facts)

    assert stored["error_category"] is None
    assert stored["response"] == {"choices": [], "echo": "***"}
    assert stored["notes"] == {"hidden": 1}


def test_a_request_stands_as_the_client_sent_it() -> None:
    led = Led(headers=[(b"x-api-key", KEY.encode())])
    led.tap.request_body(b"my " + KEY.encode())
    led.start(JSON, 400)
    led.send(b"{}", more=False)

    assert _stored(led.end())["request_raw"] == f"my {KEY}"


@pytest.mark.parametrize(
    ("body", "text", "bad"),
    [
        (b"a\xff\xfeb", "a\ufffd\ufffdb", [[1, "ff"], [2, "fe"]]),
        (b"\xe2\x82", "\ufffd", [[0, "e282"]]),
        ("é".encode() + b"\x80", "é\ufffd", [[2, "80"]]),
    ],
)
def test_bytes_that_are_not_utf8_are_told_where_they_were(
    body: bytes, text: str, bad: list[list[object]]
) -> None:
    led = Led()
    led.tap.request_body(body)
    led.start(JSON)
    led.send(body, more=False)

    stored = _stored(led.end())

    assert stored["request_raw"] == stored["response_raw"] == text == body.decode(errors="replace")
    assert stored["notes"] == {"not_utf8": {"request": bad, "response": bad}}


def test_a_body_that_is_no_text_at_all_is_kept_as_base64() -> None:
    body = bytes(range(256))

    stored = _stored(_answered(body))

    assert b64decode(stored["response_raw"]) == body
    assert stored["notes"] == {"undecodable_body": ["response"]}


def test_a_key_like_a_word_is_hidden_in_the_errors_of_an_answer_that_began_well() -> None:
    said = chunk({"content": "use planted-word-key"})
    error = b'data: {"error":{"message":"no such key: planted-word-key","code":null}}\n\n'

    streamed = _stored(_answered(said + error, headers=SSE, key="planted-word-key"))
    body = b'{"error":{"message":"no such key: planted-word-key"},"choices":null}'
    whole = _stored(_answered(body, key="planted-word-key"))

    assert streamed["error_category"] == "upstream_error"
    assert streamed["response_raw"] == (
        said.decode() + 'data: {"error":{"message":"no such key: ***","code":null}}\n\n'
    )
    assert streamed["response"]["choices"][0]["message"]["content"] == "use planted-word-key"
    assert streamed["notes"]["hidden"] == 2  # once in the text, once in what it amounts to
    assert whole["response"]["error"]["message"] == "no such key: ***"


def test_a_stream_with_a_stray_byte_tells_of_it() -> None:
    body = chunk({"content": "a"}) + b": \xff\n\n"

    stored = _stored(_answered(body, headers=SSE))

    assert stored["notes"]["not_utf8"] == {"response": [[len(chunk({"content": "a"})) + 2, "ff"]]}


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"0")]])
@pytest.mark.parametrize(
    ("kind", "category"), [(SSE, "stream_truncated"), (JSON, "capture_parse_error")]
)
def test_an_empty_answer_is_one_that_cannot_be_read_however_it_is_framed(
    headers: Headers, kind: Headers, category: str
) -> None:
    assert _stored(_answered(b"", headers=[*kind, *headers]))["error_category"] == category


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("POST", 204), ("POST", 304)])
def test_an_answer_that_has_no_body_by_the_rules_of_http_is_none(method: str, status: int) -> None:
    led = Led(method=method)
    led.start([*SSE, (b"content-length", b"0")], status)

    stored = _stored(led.end())

    assert (stored["error_category"], stored["response"]) == (None, None)


def test_a_request_that_broke_off_is_noted_also_when_it_reads_as_whole() -> None:
    led = Led()
    led.tap.request_body(b'{"model":"m"}')
    led.tap.client_gone(101.0)

    stored = _stored(led.end(), CallFacts(request_open=True))

    assert stored["request"] == {"model": "m"}
    assert stored["notes"] == {"phase": "before_headers", "broken_off_body": ["request"]}


def test_long_texts_are_made_in_pieces_that_cut_no_character_and_no_key() -> None:
    around = 768 * 1024
    for shift in (0, 1, 2, 3, len(KEY) - 1):
        text = "é" * ((around - shift) // 2) + KEY + "€" * 300_000
        stored = _stored(_answered(text.encode(), status=500))
        assert stored["response_raw"].split("***") == text.split(KEY), shift
        assert "not_utf8" not in stored["notes"]
