"""After every chunk it is known how far a client is that reads line by line."""

from typing import Any

import pytest

from nemo_gym.wire.dialects import CHAT, DIALECTS, MESSAGES, RESPONSES, Dialect
from nemo_gym.wire.dialects.base import StreamState
from nemo_gym.wire.dialects.chat import ChatAssembler
from nemo_gym.wire.json import dumps
from nemo_gym.wire.sse import Event
from nemo_gym.wire.stream import StreamReader, looks_like_events
from support.reassembly import assemble, bytewise
from support.sse import DONE, block, chunk, event, message_end, message_start, typed

OPEN, ENDING, ENDED = StreamState.OPEN, StreamState.ENDING, StreamState.ENDED
FAILING = StreamState.FAILING


def _states(dialect: Dialect, *pieces: bytes) -> list[StreamState]:
    reader = StreamReader(dialect)
    return [reader.feed(piece, 0.0) for piece in pieces]


def test_a_chat_stream_has_ended_with_the_line_of_its_sentinel() -> None:
    assert _states(CHAT, chunk({"content": "a"}), b"data: [DON", b"E]", b"\n", b"\n") == [
        OPEN,
        OPEN,
        OPEN,
        ENDED,
        ENDED,
    ]


@pytest.mark.parametrize(
    "line", [b"data:[DONE]\r", b"data: [DONE] \n", b"event: x\ndata: [DONE]\n"]
)
def test_a_sentinel_is_known_in_every_spelling(line: bytes) -> None:
    assert _states(CHAT, line) == [ENDED]


def test_a_messages_stream_has_ended_with_the_name_of_its_last_event() -> None:
    body = message_start() + b"event: message_stop"

    assert _states(MESSAGES, body, b"\n", b"data: {}\n\n") == [OPEN, ENDED, ENDED]
    assert assemble(MESSAGES, [body, b"\n"]).terminal == "message_stop"


def test_a_messages_stream_without_names_has_ended_with_the_data_of_its_last_event() -> None:
    stop = b'data: {"type":"message_stop"}'

    assert _states(MESSAGES, event({"type": "message_start"}), stop, b"\n") == [OPEN, OPEN, ENDED]


def test_a_responses_stream_ends_with_the_data_of_its_last_event() -> None:
    data = b'data: {"type":"response.completed","response":{"id":"r"}}'

    states = _states(RESPONSES, b"event: response.completed\n", data, b"\n", b"\n")

    assert states == [ENDING, ENDING, ENDED, ENDED]


def test_data_in_two_lines_is_awaited() -> None:
    states = _states(
        RESPONSES, b'data: {"type":"response.completed",\n', b'data: "response":{"id":"r"}}\n'
    )

    assert states == [ENDING, ENDED]


def test_a_mark_inside_a_text_ends_nothing() -> None:
    delta = b'data: {"type":"response.output_text.delta","delta":"\\"response.completed\\""}\n'
    quoted = b'data: {"type":"x","delta":["response.completed"]}\n'
    begun = b'data: {"type":"x","delta":\n'

    assert _states(RESPONSES, delta, b"\n") == [OPEN, OPEN]
    assert _states(RESPONSES, quoted, b"\n") == [OPEN, OPEN]
    assert _states(RESPONSES, begun, b'data: ["error"]}\n', b"\n") == [OPEN, OPEN, OPEN]


@pytest.mark.parametrize(
    ("dialect", "whole"), [(CHAT, ENDED), (MESSAGES, ENDED), (RESPONSES, FAILING)]
)
def test_an_error_event_ends_a_stream_but_a_responses_failure_may_follow(
    dialect: Dialect, whole: StreamState
) -> None:
    states = _states(dialect, b"event: error\n", event({"error": {"message": "x"}}))

    assert states == [ENDING, whole]


def test_an_error_that_comes_without_a_name_is_seen_in_its_line() -> None:
    assert _states(CHAT, b'data: {"error":{"message":"x"}}\n') == [ENDED]


def test_an_error_of_responses_is_one_from_its_line_on_until_the_stream_goes_on() -> None:
    error = b'data: {"type":"error","message":"x"}\n'
    delta = typed("response.output_text.delta", delta="a")

    states = _states(RESPONSES, error, b"\n", b": ping\n\n", typed("ping"), delta, delta)

    assert states == [FAILING, FAILING, FAILING, FAILING, OPEN, OPEN]


@pytest.mark.parametrize("dialect", [MESSAGES, RESPONSES], ids=lambda d: d.name)
def test_an_event_of_another_type_may_speak_of_an_error_and_nothing_ends(dialect: Dialect) -> None:
    aside = typed("gateway.attempt", error={"message": "refused, trying another"})

    assert _states(dialect, aside[:-1], aside[-1:], aside) == [OPEN, OPEN, OPEN]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)
def test_what_is_sent_under_the_name_of_an_error_is_one_whatever_its_type(dialect: Dialect) -> None:
    error = event({"type": "overloaded_error", "message": "x"}, "error")

    assembled = assemble(dialect, [error])

    assert assembled.error == {"type": "overloaded_error", "message": "x"}


def test_lines_after_the_end_in_the_same_chunk_change_nothing() -> None:
    assert _states(CHAT, DONE + b"data: x\n") == [ENDED]


def test_what_comes_after_the_end_is_not_taken() -> None:
    body = chunk({"content": "a"}) + DONE

    assert assemble(CHAT, [body, chunk({"content": "b"})]) == assemble(CHAT, [body])
    assert assemble(CHAT, [body + chunk({"content": "b"})]) == assemble(CHAT, [body])


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)
@pytest.mark.parametrize(
    ("bad", "count"),
    [
        (b"data:\n\n", 1),
        (b"data: \n\n", 1),
        (b"data: :x\n\n", 1),
        (b"data: not json\n\n", 1),
        (b"data: 1\n\ndata: null\n\ndata: []\n\n", 3),
        (b"data: {", 0),
        (b"event: x\n\n", 0),
        (b'data: {"choices":[],"usage":{"a":' + b"[" * 1000 + b"]" * 1000 + b"}}\n\n", 0),
        (b": {\n\n", 0),
    ],
)
def test_data_that_cannot_be_read_is_skipped_and_counted(
    dialect: Dialect, bad: bytes, count: int
) -> None:
    assembled = assemble(dialect, bytewise(bad))

    assert assembled.notes.get("unparsed_events", 0) == count


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)
def test_an_error_that_is_cut_within_its_line_never_came(dialect: Dialect) -> None:
    assembled = assemble(dialect, [b'event: error\ndata: {"message": "a'])

    assert (assembled.error, assembled.notes) == (None, {})


@pytest.mark.parametrize(
    ("dialect", "body", "terminal"),
    [
        (RESPONSES, typed("response.completed", response={}, choices=[]), "response.completed"),
        (MESSAGES, event({"type": "message_stop", "choices": []}), "message_stop"),
    ],
    ids=["responses", "messages"],
)
def test_an_event_is_what_its_type_says_whatever_else_it_has(
    dialect: Dialect, body: bytes, terminal: str
) -> None:
    assembled = assemble(dialect, [body])

    assert (assembled.terminal, assembled.notes) == (terminal, {})


def test_an_event_too_deep_to_be_joined_is_skipped_and_counted() -> None:
    class TooDeep(ChatAssembler):
        def _take(self, event: dict[str, object], kind: str) -> None:
            raise RecursionError

    assembler = TooDeep()
    assembler.feed(Event(None, b"{}"))

    assert assembler.finish().notes == {"unparsed_events": 1}


def test_an_unreadable_event_in_mid_stream_does_not_stop_the_rest() -> None:
    assembled = assemble(
        CHAT, [chunk({"content": "a"}), b"data: oops\n\n", chunk({"content": "b"}), DONE]
    )

    response: Any = assembled.response
    assert response["choices"][0]["message"]["content"] == "ab"
    assert assembled.notes == {"unparsed_events": 1}


def test_json_on_two_data_lines_with_unknown_lines_between_is_read_once() -> None:
    body = (
        b"event: what\nid: 1\nretry: 5\n"
        b'data:{"choices":[{"index":0,\ndata: "delta":{"content":"a"}}]}\n\n'
    )

    response: Any = assemble(CHAT, bytewise(body)).response

    assert response["choices"][0]["message"]["content"] == "a"


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_line_ends_do_not_matter(end: bytes) -> None:
    body = message_start() + block(0, {"type": "text", "text": "a"}) + message_end()

    other = assemble(MESSAGES, bytewise(body.replace(b"\n", end)))

    assert other == assemble(MESSAGES, [body])


def test_halves_of_a_character_in_two_events_become_one() -> None:
    halves = [
        b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00"}}]}\n\n',
    ]

    assembled = assemble(CHAT, halves)

    assert '"content":"😀"'.encode() in dumps(assembled.response)
    assert "unparsed_events" not in assembled.notes


def test_time_of_the_first_data_is_not_that_of_comments_or_pings() -> None:
    reader = StreamReader(MESSAGES)
    pieces = [b": hi\n\n", typed("ping"), b"event: ping\ndata: {}\n\n", b"event: message_start\n"]

    for now, piece in enumerate(pieces):
        reader.feed(piece, float(now))
        assert reader.first_data_at is None

    reader.feed(b'data: {"type":', 10.0)
    assert reader.first_data_at is None

    reader.feed(b'"message_start","message":{}}\n\n', 11.0)
    assert reader.first_data_at == 10.0


@pytest.mark.parametrize("kind", ["ping", "keepalive", "response.keepalive"])
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)
def test_no_keepalive_is_data(dialect: Dialect, kind: str) -> None:
    reader = StreamReader(dialect)

    reader.feed(typed(kind) + event({}, kind) + event({"type": kind}), 1.0)
    reader.finish()

    assert reader.first_data_at is None


def test_a_ping_whose_bytes_came_early_does_not_date_the_data_after_it() -> None:
    reader = StreamReader(MESSAGES)

    reader.feed(b'data: {"type":', 1.0)
    reader.feed(b'"ping"}\n\n' + message_start(), 2.0)

    assert reader.first_data_at == 2.0


def test_an_event_that_comes_bit_by_bit_has_the_time_of_its_first_data() -> None:
    reader = StreamReader(CHAT)

    for now, piece in enumerate([b": hi\n", b"data: {", b'"choices":', b"[]}\n", b"\n"]):
        reader.feed(piece, float(now))

    assert reader.first_data_at == 1.0


def test_data_that_only_the_end_of_the_stream_completes_has_its_time() -> None:
    reader = StreamReader(CHAT)

    reader.feed(b'data: {"choices":[]}', 3.0)
    reader.finish()

    assert reader.first_data_at == 3.0


@pytest.mark.parametrize(
    ("dialect", "before", "content"),
    [
        (CHAT, chunk({"content": "a"}), chunk(finish="stop")),
        (MESSAGES, message_start(), typed("message_delta", delta={"stop_reason": "end_turn"})),
        (
            RESPONSES,
            typed("response.output_item.added", output_index=0, item={"type": "message"}),
            typed("response.output_item.done", output_index=0, item={"type": "message"}),
        ),
    ],
    ids=["chat", "messages", "responses"],
)
def test_content_is_complete_before_the_end_is_told(
    dialect: Dialect, before: bytes, content: bytes
) -> None:
    reader, waiting = StreamReader(dialect), StreamReader(dialect)
    assert not reader.content_complete

    reader.feed(before, 0.0)
    waiting.feed(before, 0.0)
    assert not reader.content_complete

    reader.feed(content, 0.0)
    assert waiting.waits(content)
    assert reader.content_complete
    assert waiting.content_complete


def test_content_is_complete_once_every_choice_has_its_reason() -> None:
    reader = StreamReader(CHAT)
    reader.feed(chunk({"content": "a"}, index=0) + chunk({"content": "b"}, index=1), 0.0)

    reader.feed(chunk(index=1, finish="stop"), 0.0)
    assert not reader.content_complete

    reader.feed(chunk(index=0, finish="length"), 0.0)
    assert reader.content_complete


@pytest.mark.parametrize(
    ("head", "verdict"),
    [
        (b"data: 1", True),
        (b"event: x", True),
        (b": comment", True),
        (b"id: 1", True),
        (b"\xef\xbb\xbf\n\nretry: 1", True),
        (b'{"a":', None),
        (b'{"a": 1}', False),
        (b"  data: 1", False),
        (b"<html>", False),
        (b"dat", None),
        (b"", None),
    ],
)
def test_the_first_bytes_tell_an_event_stream(head: bytes, verdict: bool | None) -> None:
    assert looks_like_events(head, last=False) is verdict
    assert looks_like_events(head, last=True) is (verdict is True)
