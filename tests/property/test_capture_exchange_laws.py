"""Laws of the tap and of the stored line, for every body and every way to cut it."""

import json
from itertools import pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from nemo_gym.capture.exchange import exchange_line
from nemo_gym.capture.tap import ExchangeTap, Request, Verdict
from nemo_gym.wire.dialects import CHAT, DIALECTS, MESSAGES, RESPONSES, Dialect
from support.responses_made import JSON, TEXT, chat_completions, messages, responses
from support.streamed import chat_stream, messages_stream, responses_stream
from support.taps import JSON as JSON_HEADERS
from support.taps import SSE, Led

_OBJECTS = st.dictionaries(TEXT, JSON, max_size=4)
_LAYOUTS = st.sampled_from(
    [
        {},
        {"indent": 2},
        {"ensure_ascii": False},
        {"separators": (",", ":")},
        {"indent": "\r\n", "ensure_ascii": False},
    ]
)


def _line(led: Led) -> bytes:
    return exchange_line(led.end(), None, model_call_id="i", model_ref_name="m")


def _pieces(body: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    return [body[a:b] for a, b in pairwise(edges)]


@given(_OBJECTS, _LAYOUTS, _OBJECTS, _LAYOUTS)
def test_bodies_that_are_objects_are_read_back_from_the_line(
    request: Any, request_layout: Any, response: Any, response_layout: Any
) -> None:
    led = Led()
    led.tap.request_body(json.dumps(request, **request_layout).encode())
    led.start(JSON_HEADERS)
    led.send(json.dumps(response, **response_layout).encode(), more=False)

    line = _line(led)

    stored = json.loads(line)
    assert (stored["request"], stored["response"]) == (request, response)
    assert b"\n" not in line
    assert b"\r" not in line


@given(st.sampled_from(DIALECTS), st.sampled_from([JSON_HEADERS, SSE, []]), st.data())
def test_any_bytes_at_all_make_one_line_of_json(
    dialect: Dialect, headers: Any, data: st.DataObject
) -> None:
    bytes_or_json = st.binary(max_size=40) | st.sampled_from(
        [
            b'{"a":"\\ud83d"}',
            b'{"a":NaN}',
            b'{"a":1e999}',
            b'{"a":' + b"1" * 40 + b"}",
            b'{"\xff":1}',
        ]
    )
    led = Led(dialect)
    led.tap.request_body(data.draw(bytes_or_json))
    led.start(headers)
    led.send_all(data.draw(st.lists(bytes_or_json, max_size=3)))

    line = _line(led)

    assert line.count(b"\n") == 0
    assert isinstance(json.loads(line.decode("utf-8")), dict)


@st.composite
def _streams(draw: st.DrawFn) -> tuple[Dialect, bytes, bytes]:
    """A dialect, a whole stream of it, and what its terminal line begins with."""
    kind = draw(st.sampled_from(["chat", "messages", "responses"]))
    if kind == "chat":
        return CHAT, chat_stream(draw(chat_completions()), 3), b"data: [DONE]\n"
    if kind == "messages":
        return MESSAGES, messages_stream(*draw(messages()), 3), b"event: message_stop\n"
    whole = responses_stream(draw(responses()), 3, ends=True)
    return RESPONSES, whole, b"event: response.completed\n"


@given(_streams(), st.lists(st.integers(0, 10**6), max_size=12))
def test_no_client_has_the_terminal_line_before_the_commit(
    stream: tuple[Dialect, bytes, bytes], cuts: list[int]
) -> None:
    dialect, body, terminal_line = stream
    led = Led(dialect)
    led.start(SSE)

    released, held, verdict = b"", b"", Verdict.SEND
    for piece in _pieces(body, cuts):
        held += piece
        verdict = led.send(piece)
        if verdict is Verdict.SEND:
            released, held = released + held, b""
        if verdict is Verdict.COMMIT:
            break

    assert verdict is Verdict.COMMIT
    assert terminal_line not in released
    assert terminal_line in released + held


@given(_streams(), st.lists(st.integers(0, 10**6), max_size=12))
def test_a_stream_is_stored_the_same_however_it_is_cut(
    stream: tuple[Dialect, bytes, bytes], cuts: list[int]
) -> None:
    dialect, body, _ = stream
    whole, cut = Led(dialect), Led(dialect)
    for led, pieces in ((whole, [body]), (cut, _pieces(body, cuts))):
        led.start(SSE)
        led.send_all(pieces)

    one, other = json.loads(_line(whole)), json.loads(_line(cut))

    assert (one["response"], one["error_category"]) == (other["response"], None)
    assert one["response_raw"].startswith(other["response_raw"].rstrip("\n"))


@given(
    _streams(),
    st.integers(10, 300),
    st.lists(st.sampled_from(["passes", "is watched", "meets a gone client"]), min_size=3),
    st.integers(0, 3000) | st.just(10**6),
)
def test_the_text_of_a_stream_is_kept_whole_whichever_way_its_pieces_take(
    stream: tuple[Dialect, bytes, bytes], size: int, ways: list[str], limit: int
) -> None:
    dialect, body, _ = stream
    tap = ExchangeTap(Request(dialect, "POST"), started_at=0.0, now=0.0, body_limit=limit)
    tap.response_start(200, SSE, 0.0)
    sent = b""
    for number, piece in enumerate(_pieces(body, list(range(0, len(body), size)))):
        way = ways[number % len(ways)]
        if way == "meets a gone client":
            tap.client_gone(0.0)
        sent += piece
        passes = tap.passes_by if way == "passes" else None
        if passes is not None and passes(piece):
            continue
        if tap.response_body(piece, True, 0.0) is Verdict.COMMIT:
            break

    kept = tap.finish(1.0).response

    assert kept.data == sent[:limit]
    assert (kept.truncated_at is not None) == (len(sent) > limit)


@example(b"data:[DONE]\n", 13, [])
@given(st.binary(max_size=30), st.integers(0, 40), st.lists(st.integers(0, 30), max_size=4))
def test_the_last_byte_of_a_declared_length_is_never_sent_before_the_commit(
    body: bytes, declared: int, cuts: list[int]
) -> None:
    led = Led()
    verdicts = [led.start([(b"content-length", str(declared).encode()), *JSON_HEADERS])]
    sent = 0
    for piece in _pieces(body, cuts):
        verdict = led.send(piece)
        verdicts.append(verdict)
        sent += len(piece)
        # What is called JSON may be events all the same, whose end may come before the length's.
        is_at_its_end = sent >= declared or b"[DONE]" in body[:sent]
        assert led.tap.committed >= (sent >= declared)
        assert led.tap.committed <= is_at_its_end

    verdicts.append(led.send(b"", more=False))

    assert verdicts.count(Verdict.COMMIT) == 1
    assert Verdict.HOLD not in verdicts
