"""A tapped call becomes one stored line: documented keys, bodies as they crossed."""

import gzip
import json
from base64 import b64decode
from typing import Any

import pytest

from nemo_gym.capture.exchange import exchange_line
from nemo_gym.capture.facts import CallFacts, UpstreamAttempt
from nemo_gym.capture.tap import Tapped
from nemo_gym.records.model_call import build
from nemo_gym.wire.dialects import CHAT, MESSAGES, RESPONSES, Dialect
from support.sse import DONE, block, chunk, event, message_start, typed
from support.taps import JSON, SSE, Led

_KEYS = [
    "model_call_id", "dialect", "model_ref", "started_at", "completed_at", "latency_ms",
    "latency_ttft_ms", "status_code", "error_category", "request", "response",
]  # fmt: skip


def _line(tapped: Tapped, facts: CallFacts | None = None) -> bytes:
    return exchange_line(tapped, facts, model_call_id="id1", model_ref_name="policy_model")


def _stored(tapped: Tapped, facts: CallFacts | None = None) -> dict[str, Any]:
    line = _line(tapped, facts)
    assert b"\n" not in line
    stored: dict[str, Any] = json.loads(line)
    assert list(stored)[: len(_KEYS)] == _KEYS
    build(stored, 0)
    return stored


def _answered(
    body: bytes = b'{"id":"r"}',
    status: int = 200,
    headers: list[tuple[bytes, bytes]] = JSON,
    request: bytes = b'{"model":"m"}',
    dialect: Dialect = CHAT,
) -> Tapped:
    led = Led(dialect)
    led.tap.request_body(request)
    led.start(headers, status)
    led.send(body, more=False)
    return led.end()


def test_a_call_without_trouble_has_the_documented_keys_and_no_more() -> None:
    stored = _stored(_answered())

    assert stored == {
        "model_call_id": "id1",
        "dialect": "chat",
        "model_ref": {"type": "responses_api_models", "name": "policy_model"},
        "started_at": 1.5e9,
        "completed_at": 1.5e9 + 0.2,
        "latency_ms": 200.0,
        "latency_ttft_ms": 200.0,
        "status_code": 200,
        "error_category": None,
        "request": {"model": "m"},
        "response": {"id": "r"},
    }


def test_bodies_stand_as_they_crossed_the_boundary() -> None:
    request, response = b'{"z": 1.50,"a":[1e3]}', b'{\n "b": "\\u00e9",\n "a": 0.10\n}\n'

    line = _line(_answered(response, request=request))

    assert b'"request":{"z": 1.50,"a":[1e3]},' in line
    assert b'"response":{ "b": "\\u00e9", "a": 0.10}}' in line


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b'{"a"', "é €".encode(), b"a\nb"])
def test_a_body_that_is_no_object_is_kept_as_text(body: bytes) -> None:
    stored = _stored(_answered(body, request=body))

    assert (stored["request"], stored["response"]) == (None, None)
    assert stored["request_raw"] == stored["response_raw"] == body.decode()
    assert stored["error_category"] == "capture_parse_error"


def test_an_object_that_strict_readers_refuse_is_kept_both_ways() -> None:
    stored = _stored(_answered(request=b'{"a":"\\ud83d"}'))

    assert (stored["request"], stored["request_raw"]) == ({"a": "\ufffd"}, '{"a":"\\ud83d"}')


def test_no_body_is_null_without_text() -> None:
    stored = _stored(_answered(b"", 204, request=b""))

    assert (stored["request"], stored["response"]) == (None, None)
    assert not {"request_raw", "response_raw"} & set(stored)
    assert stored["error_category"] is None


def test_a_stream_keeps_its_text_beside_the_assembled_response() -> None:
    body = chunk({"content": "hé"}, finish="stop", usage={"total_tokens": 3}) + DONE

    stored = _stored(_answered(body, headers=SSE))

    assert stored["response"]["choices"][0]["message"]["content"] == "hé"
    assert stored["response_raw"] == body.decode()
    assert stored["error_category"] is None


def test_a_stream_nested_beyond_reason_keeps_its_text() -> None:
    body = b'data: {"choices":[],"deep":' + b"[" * 1000 + b"]" * 1000 + b"}\n\n" + DONE

    stored = _stored(_answered(body, headers=SSE))

    assert stored["response_raw"] == body.decode()


def test_a_response_that_nests_too_deeply_to_be_written_is_noted() -> None:
    delta = b'{"choices":[{"index":0,"delta":{"content":"x","deep":%b}}]}'
    body = b"data: " + delta % (b"[" * 900 + b"]" * 900) + b"\n\n" + DONE

    stored = _stored(_answered(body, headers=SSE))

    assert stored["response"] is None
    assert stored["response_raw"] == body.decode()
    assert stored["notes"]["nested_too_deeply"] == ["response"]


def test_facts_of_the_forwarder_are_stored_in_the_documented_order() -> None:
    facts = CallFacts(
        source="local",
        local_reason="upstream_unreachable",
        attempts=[
            UpstreamAttempt(1.0, ms=2.00049, status=503),
            UpstreamAttempt(3.0, error="ConnectFailed: refused"),
        ],
        notes={"provider_dialect": "messages"},
    )
    led = Led(headers=[(b"x-session-id", b"s1"), (b"x-assistant-message-id", b"m1")])
    led.start(JSON, 502)
    led.send(b"oops", more=False)

    stored = _stored(led.end(), facts)

    assert list(stored)[len(_KEYS) :] == [
        "response_raw",
        "response_source",
        "upstream_attempted",
        "upstream_status_code",
        "local_response_reason",
        "client_session_id",
        "client_assistant_message_id",
        "upstream_attempts",
        "notes",
    ]
    assert stored["upstream_attempts"] == [
        {"status": 503, "started_at": 1.0, "ms": 2.0},
        {"error": "ConnectFailed: refused", "started_at": 3.0, "ms": None},
    ]
    assert (stored["upstream_status_code"], stored["upstream_attempted"]) == (503, True)
    assert stored["notes"] == {"provider_dialect": "messages"}


def test_one_attempt_is_not_listed_and_none_is_told() -> None:
    one = _stored(_answered(), CallFacts(attempts=[UpstreamAttempt(1.0, ms=1.0, status=200)]))
    none = _stored(_answered(), CallFacts())

    assert "upstream_attempts" not in one
    assert (none["upstream_attempted"], "upstream_status_code" in none) == (False, False)


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (400, "client_error"), (401, "auth"), (403, "auth"), (404, "not_found"),
        (408, "timeout"), (422, "client_error"), (429, "rate_limit"), (500, "upstream_error"),
        (503, "upstream_error"), (504, "timeout"), (529, "upstream_error"), (302, None),
    ],
)  # fmt: skip
def test_a_status_has_its_category(status: int, category: str | None) -> None:
    assert _stored(_answered(b'{"error":{}}', status))["error_category"] == category
    assert _stored(_answered(event({"error": 1}), status, SSE))["error_category"] == category


def test_what_the_forwarder_knows_goes_before_the_status() -> None:
    facts = CallFacts(source="local", error_category="connection")

    assert _stored(_answered(b"{}", 502), facts)["error_category"] == "connection"


@pytest.mark.parametrize(
    ("dialect", "body", "category"),
    [
        (CHAT, chunk({"content": "a"}) + DONE, None),
        (CHAT, chunk({"content": "a"}, finish="stop"), "stream_truncated"),
        (CHAT, chunk({}) + event({"error": {"m": 1}}) + DONE, "upstream_error"),
        (CHAT, b"", "stream_truncated"),
        (MESSAGES, message_start() + block(0, {"type": "text", "text": "a"}), "stream_truncated"),
        (MESSAGES, message_start() + typed("error", error={"type": "e"}), "upstream_error"),
        (RESPONSES, typed("response.completed", response={"id": "r"}), None),
        (RESPONSES, typed("response.incomplete", response={"id": "r"}), "incomplete"),
        (RESPONSES, typed("response.failed", response={"id": "r"}), "upstream_error"),
        (RESPONSES, typed("response.created", response={"id": "r"}), "stream_truncated"),
        (RESPONSES, typed("error", message="m"), "upstream_error"),
    ],
)
def test_a_stream_has_the_category_of_its_end(
    dialect: Dialect, body: bytes, category: str | None
) -> None:
    stored = _stored(_answered(body, headers=SSE, dialect=dialect))

    assert (stored["error_category"], stored["status_code"]) == (category, 200)


@pytest.mark.parametrize(
    ("body", "category"),
    [
        (b'{"status":"completed"}', None),
        (b'{"status":"incomplete"}', "incomplete"),
        (b'{"status":"failed","error":{"code":"x"}}', "upstream_error"),
        (b'{"error":{"message":"x"}}', "upstream_error"),
        (b'{"error":null,"status":["odd"]}', None),
        (b"", "capture_parse_error"),
    ],
)
def test_a_body_has_the_category_that_it_tells(body: bytes, category: str | None) -> None:
    assert _stored(_answered(body, dialect=RESPONSES))["error_category"] == category


def test_a_key_that_an_error_repeats_is_not_stored_and_the_rest_is() -> None:
    body = b'{"error":{"message":"Incorrect API key provided: sk-planted-1","code":401}}'
    facts = CallFacts(secrets=frozenset({"sk-planted-1"}))

    stored = _stored(_answered(body, status=401), facts)

    assert "sk-planted-1" not in json.dumps(stored)
    assert stored["response"]["error"]["code"] == 401
    assert "Incorrect API key provided" in stored["response"]["error"]["message"]


@pytest.mark.parametrize(
    "repeated",
    [
        rb"AbC\/def+ghi\/jkl==",
        rb"AbC/def\u002Bghi/jkl==",
        rb"AbC/def+ghi/jkl\u003d\u003d",
        rb"AbC%2fdef&#43;ghi\\/jkl&#x3D;\\u003D",
    ],
)
@pytest.mark.parametrize("framing", [b"%b", b"data: %b\n\n"])
def test_the_key_of_a_client_is_not_stored_however_an_error_escapes_it(
    repeated: bytes, framing: bytes
) -> None:
    led = Led(headers=[(b"authorization", b"Bearer AbC/def+ghi/jkl==")])
    streamed = framing.startswith(b"data")
    led.start(SSE if streamed else JSON, 200 if streamed else 401)
    led.send(framing % b'{"error":{"message":"bad key %b!"}}' % repeated, more=False)

    stored = _stored(led.end())

    assert stored["response"]["error"]["message"] == "bad key ***!"
    shown = b'{"error":{"message":"bad key ***!"}}'
    assert stored.get("response_raw") == ((framing % shown).decode() if streamed else None)


def test_a_key_in_an_error_that_is_nested_deeply_is_not_stored_and_the_call_is() -> None:
    depth = b"[" * 600 + b"]" * 600
    body = rb'{"message":"sk\u002dplanted-1","error":%b}' % depth
    unquoted = rb'{"\u0022planted-2":1,"error":%b}' % depth
    facts = CallFacts(secrets=frozenset({"sk-planted-1", '"planted-2":'}))

    assert json.loads(_line(_answered(body, status=400), facts))["response"]["message"] == "***"
    # Hidden is what stands in one string, so that the rest stays JSON.
    assert "***" in json.loads(_line(_answered(unquoted, status=400), facts))["response"]


def test_a_call_that_the_client_left_is_cancelled_with_its_phase_and_partial() -> None:
    led = Led()
    led.start(SSE)
    led.send(chunk({"content": "par"}))
    led.tap.client_gone(led.now)

    stored = _stored(led.end(raised=True), CallFacts(error_category="connection"))

    assert stored["error_category"] == "cancelled"
    assert stored["notes"] == {"phase": "mid_stream"}
    assert stored["response"]["choices"][0]["message"]["content"] == "par"


@pytest.mark.parametrize(
    ("statuses", "phase"),
    [
        ([], "before_headers"),
        ([None], "before_headers"),
        ([429], "before_headers"),
        ([429, 200], "before_first_data"),
    ],
)
def test_a_head_that_the_forwarder_kept_back_had_come(
    statuses: list[int | None], phase: str
) -> None:
    led = Led()
    led.tap.client_gone(101.0)
    facts = CallFacts(attempts=[UpstreamAttempt(1.0, 2.0, status) for status in statuses])

    assert _stored(led.end(), facts)["notes"]["phase"] == phase


def test_an_application_that_raises_is_an_exception_unless_more_is_known() -> None:
    before, middle = Led(), Led()
    middle.start(JSON)
    middle.send(b'{"a"')
    known = CallFacts(error_category="connection")

    assert _stored(before.end(raised=True))["error_category"] == "exception"
    assert _stored(before.end(raised=True), known)["error_category"] == "connection"
    assert _stored(middle.end(raised=True))["error_category"] == "exception"
    assert _stored(middle.end(raised=True), known)["error_category"] == "connection"
    assert _stored(middle.end())["response_raw"] == '{"a"'


def test_a_stream_that_broke_is_truncated_whoever_broke_it() -> None:
    led = Led()
    led.start(SSE)
    led.send(chunk({"content": "a"}))

    stored = _stored(led.end(raised=True), CallFacts(error_category="connection"))

    assert stored["error_category"] == "stream_truncated"


def test_notes_of_the_stream_are_stored() -> None:
    body = chunk({"content": "a"}) + b"data: oops\n\n" + DONE

    assert _stored(_answered(body, headers=SSE))["notes"] == {"unparsed_events": 1}


def test_bodies_beyond_the_limit_are_cut_and_noted() -> None:
    led = Led(limit=5)
    led.tap.request_body(b'{"a":1}')
    led.start(JSON)
    led.send(b'{"b":2}', more=False)

    stored = _stored(led.end())

    assert (stored["request_raw"], stored["response_raw"]) == ('{"a":', '{"b":')
    assert stored["notes"] == {"truncated_at": 5, "truncated_bodies": ["request", "response"]}


def test_bodies_that_are_not_what_they_say_are_kept_as_base64_and_noted() -> None:
    zstd, gzip = [(b"content-encoding", b"zstd")], [(b"content-encoding", b"gzip")]
    led = Led(headers=zstd)
    led.tap.request_body(b"\xff\x00corrupt")
    led.start([*JSON, *gzip])
    led.send(b"corrupt too", more=False)

    stored = _stored(led.end())

    assert b64decode(stored["request_raw"]) == b"\xff\x00corrupt"
    assert b64decode(stored["response_raw"]) == b"corrupt too"
    assert stored["notes"] == {"undecodable_body": ["request", "response"]}
    assert stored["error_category"] == "capture_parse_error"


@pytest.mark.parametrize("cut", [1, 12])
def test_compressed_bodies_that_broke_off_are_kept_as_far_as_they_came_and_noted(cut: int) -> None:
    packed = [(b"content-encoding", b"gzip")]
    led = Led(headers=packed)
    led.tap.request_body(gzip.compress(b'{"model":"m"}' + bytes(range(99)))[:-cut])
    led.start([*JSON, *packed])
    led.send(gzip.compress(b'{"id":"r"}' + bytes(range(99)))[:-cut], more=False)

    stored = _stored(led.end())

    assert stored["request_raw"].startswith('{"model":"m"}')
    assert stored["response_raw"].startswith('{"id":"r"}')
    assert stored["notes"] == {"broken_off_body": ["request", "response"]}


def test_a_compressed_stream_is_whole_with_its_last_event() -> None:
    packed = gzip.compress(chunk({"content": "a"}) + DONE)
    ended, torn = (
        _stored(_answered(body, headers=[*SSE, (b"content-encoding", b"gzip")]))
        for body in (packed[:-8], gzip.compress(chunk({"content": "a"}))[:-8])
    )

    assert "notes" not in ended
    assert torn["notes"] == {"broken_off_body": ["response"]}
    assert torn["error_category"] == "stream_truncated"


def test_a_stream_that_is_not_what_it_says_is_kept_as_base64() -> None:
    stored = _stored(_answered(b"corrupt", headers=[*SSE, (b"content-encoding", b"br")]))

    assert b64decode(stored["response_raw"]) == b"corrupt"
    assert stored["error_category"] == "capture_parse_error"
