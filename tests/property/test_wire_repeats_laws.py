"""Events read many at a time, where they repeat, are read as they would be one by one."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_gym.wire.dialects import CHAT, DIALECTS, MESSAGES, RESPONSES, Dialect
from nemo_gym.wire.dialects.base import Assembled, Assembler
from nemo_gym.wire.json import dumps
from nemo_gym.wire.repeats import Repeats
from nemo_gym.wire.sse import EventParser
from nemo_gym.wire.stream import StreamReader
from support.sse import DONE, chunk, cut, event, message_start, typed

HOLE = "<the piece>"
"""Stands in an event for the quoted piece of text."""

TOP = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def of_chat(delta: dict[str, Any], choice: dict[str, Any] | None = None, **top: Any) -> bytes:
    return event({**TOP, "choices": [{"index": 0, "delta": delta, **(choice or {})}], **top})


def arguments(**fields: Any) -> bytes:
    return of_chat({"tool_calls": [{"index": 0, "function": {"arguments": HOLE}, **fields}]})


def of_messages(index: int = 0, **delta: Any) -> bytes:
    return typed("content_block_delta", index=index, delta=delta)


def of_responses(kind: str, **fields: Any) -> bytes:
    return typed(kind, item_id="i1", output_index=0, **fields)


GROWING: dict[str, list[bytes]] = {
    "chat": [
        of_chat({"content": HOLE}),
        of_chat({"content": HOLE}, {"finish_reason": None, "logprobs": None}, usage=None),
        of_chat({"content": HOLE}, obfuscation="a1B2"),
        of_chat({"role": "assistant", "content": HOLE, "reasoning_content": None}),
        of_chat({"content": HOLE}, {"content_filter_results": {"hate": {"filtered": False}}}),
        of_chat({"reasoning": HOLE, "content": ""}, p="abc"),
        of_chat({"refusal": HOLE}, error=None),
        of_chat({"an_unknown_field": HOLE}),
        arguments(),
        arguments(type="function", id=None),
        b": a comment\nid: 7\n" + of_chat({"content": HOLE}),
    ],
    "messages": [
        of_messages(type="text_delta", text=HOLE),
        of_messages(type="thinking_delta", thinking=HOLE),
        of_messages(1, type="input_json_delta", partial_json=HOLE),
        event({"type": "content_block_delta", "index": 0, "p": "ab", "delta": {"text": HOLE}}),
    ],
    "responses": [
        of_responses(
            "response.output_text.delta",
            sequence_number=4,
            content_index=0,
            delta=HOLE,
            logprobs=[],
            obfuscation="xYz0",
        ),
        of_responses("response.output_text.delta", content_index=0, delta=HOLE),
        of_responses("response.function_call_arguments.delta", delta=HOLE, sequence_number=10),
        of_responses("response.reasoning_summary_text.delta", summary_index=1, delta=HOLE),
    ],
}
OTHERS: dict[str, list[bytes]] = {
    "chat": [
        chunk({"role": "assistant", "content": ""}),
        chunk({}, finish="stop"),
        of_chat({"content": HOLE}, {"index": 1}),
        of_chat({"content": HOLE}, {"logprobs": {"content": [{"token": "t"}]}}),
        of_chat({"content": HOLE}, {"token_ids": [1, 2]}),
        of_chat({"content": HOLE, "reasoning": HOLE}),
        of_chat({"content": [{"type": "text", "text": HOLE}]}),
        of_chat({"content": HOLE}, usage={"prompt_tokens": 1}),
        of_chat({"content": HOLE}, created=2),
        of_chat({"content": "an error"}, service_tier="b", model="other"),
        of_chat({"tool_calls": [{"index": 0, "id": "t1", "function": {"name": "f"}}]}),
        of_chat({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": HOLE}}]}),
        of_chat({"tool_calls": [{"index": 1, "function": {"arguments": HOLE}}] * 2}),
        event({**TOP, "choices": [], "usage": {"prompt_tokens": 2}}),
        event({**TOP, "choices": [], "x_groq": {"error": "e"}}),
        typed("content_block_delta", index=0, delta={"type": "text_delta", "text": HOLE}),
    ],
    "messages": [
        message_start(input_tokens=1),
        typed("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        typed("content_block_start", index=1, content_block={"type": "tool_use", "input": {}}),
        typed("content_block_stop", index=0),
        typed("content_block_start", index=0, content_block={"type": "text", "text": "error"}),
        of_messages(type="citations_delta", citation={"cited_text": HOLE}),
        of_messages(type="signature_delta", signature=HOLE),
        of_messages(type="text_delta", text=HOLE, more="1"),
        typed("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}),
        chunk({"content": HOLE}),
    ],
    "responses": [
        typed("response.created", response={"id": "r"}),
        typed("response.output_item.added", output_index=0, item={"type": "message", "id": "i1"}),
        typed("response.output_item.added", output_index=0, item={"type": "message", "id": "i2"}),
        typed("response.output_item.done", output_index=0, item={"type": "message", "id": "i1"}),
        of_responses("response.output_text.done", content_index=0, text="whole"),
        of_responses("response.output_text.done", content_index=0, text="an error"),
        of_responses("response.output_text.delta", content_index=0, delta=HOLE, logprobs=[{}]),
        of_responses("response.output_text.delta", content_index=1, delta=HOLE),
        chunk({"content": HOLE}),
    ],
}
ENDS = {"chat": DONE, "messages": typed("message_stop"), "responses": typed("response.completed")}
ANYTHING = [
    typed("ping"),
    b": a comment\n\n",
    b"event: named\n",
    b"data: {\ndata: }\n\n",
    b"data: not JSON\n\n",
    event({"message": "m", "type": "error"}),
    b"\n",
]

_TEXT = st.text(st.sampled_from('ab é€😀"\\{}[]:,\n\r\x00\u2028'), max_size=6) | st.text(max_size=6)
_TOKEN = st.one_of(
    _TEXT.map(json.dumps),
    _TEXT.map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(
        [
            r'"\ud83d"',
            r'"\/"',
            '"an error"',
            '"tab\there"',
            '"a","b":"c"',
            '"cut',
            '"x\\"',
            "null",
            "7",
        ]
    ),
)
_PADDING = st.sampled_from(["", "q7", "Q" * 9, "a b", 'a"b', r"a\"b", 12])
_NUMBER = st.sampled_from(["1", "25", "0", "07", "-1", "2.5", '"3"', "4e1"])


@st.composite
def streams(draw: st.DrawFn) -> tuple[Dialect, list[bytes]]:
    """A dialect, and the events of a stream in which runs of one kind come again and again."""
    dialect = draw(st.sampled_from(DIALECTS))
    growing = st.sampled_from(GROWING[dialect.name])
    others = st.sampled_from(OTHERS[dialect.name] + ANYTHING)
    kinds: list[bytes] = draw(st.lists(others, max_size=2))
    for _ in range(draw(st.integers(1, 3))):
        kinds += [draw(growing | growing | others)] * draw(st.integers(2, 7))
        kinds += draw(st.lists(others, max_size=1))
    parts = [_filled(draw, kind) for kind in kinds]
    if draw(st.booleans()):
        parts.append(ENDS[dialect.name])
    return dialect, parts


def _filled(draw: st.DrawFn, part: bytes) -> bytes:
    hole = json.dumps(HOLE).encode()
    while hole in part:
        part = part.replace(hole, draw(_TOKEN).encode("utf-8", "surrogatepass"), 1)
    for padding in (b'"a1B2"', b'"xYz0"'):
        if padding in part:
            part = part.replace(padding, _quoted(draw(_PADDING)))
    for number in (b'"sequence_number": 4', b'"sequence_number": 10'):
        if number in part:
            part = part.replace(number, b'"sequence_number": ' + draw(_NUMBER).encode())
    return part


def _quoted(padding: object) -> bytes:
    return f'"{padding}"'.encode() if isinstance(padding, str) else str(padding).encode()


def one_by_one(dialect: Dialect, body: bytes) -> Assembled:
    """Return what a stream amounts to, each event taken by itself."""
    parser, assembler = EventParser(), dialect.assembler()
    for each in parser.feed(body):
        assembler.feed(each)
    cut = bool(parser.partial)
    for each in parser.finish():
        assembler.feed(each, cut=cut)
    return assembler.finish()


def written(assembled: Assembled) -> tuple[object, ...]:
    """Return it as it would be stored: what is no number is equal to itself then."""
    told = (assembled.response, assembled.error, assembled.notes)
    return (*map(dumps, told), assembled.terminal)


@settings(max_examples=500)
@given(
    streams(),
    st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"]),
    st.sampled_from([None, None, [7, 90, 300], [200], [1000]]),
    st.sampled_from([0, 0, 600, 1200]),
)
def test_what_repeats_is_read_as_it_would_be_one_by_one(
    stream: tuple[Dialect, list[bytes]],
    line_end: bytes,
    sizes: list[int] | None,
    together: int,
) -> None:
    dialect, parts = stream
    parts = [part.replace(b"\n", line_end) for part in parts]
    body = b"".join(parts)
    reader = StreamReader(dialect, together=together)
    for number, piece in enumerate(parts if sizes is None else cut(body, sizes)):
        if not reader.waits(piece):
            reader.feed(piece, float(number))
        if number % 9 == 8:
            assert reader.content_complete in (True, False)  # asking has it read what waits

    assert written(reader.finish()) == written(one_by_one(dialect, body))


@pytest.mark.parametrize("together", [0, 400])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_whatever_comes_between_events_that_repeat_is_minded(
    dialect: Dialect, together: int
) -> None:
    hole = json.dumps(HOLE).encode()
    for part in GROWING[dialect.name]:
        run = [part.replace(hole, b'"%d "' % number) for number in range(8)]
        for other in OTHERS[dialect.name] + ANYTHING:
            stream = [*run[:4], other.replace(hole, b'"an error"'), *run[4:]]
            reader = StreamReader(dialect, together=together)
            for number, piece in enumerate(stream):
                if not reader.waits(piece):
                    reader.feed(piece, float(number))

            assembled = one_by_one(dialect, b"".join(stream))
            assert written(reader.finish()) == written(assembled), (part, other)


PLAIN = [(CHAT, part) for part in GROWING["chat"]] + [
    (dialect, part) for dialect in (MESSAGES, RESPONSES) for part in GROWING[dialect.name]
]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(("dialect", "part"), PLAIN)
def test_events_of_every_server_s_habit_are_read_together(
    dialect: Dialect, part: bytes, line_end: bytes
) -> None:
    part = part.replace(b"\n", line_end)
    words = ["Once", 'he said "so"', "é\n", "😀"]
    hole = json.dumps(HOLE).encode()
    events = [part.replace(hole, json.dumps(word).encode()) for word in words]
    assembler, repeats = begun(dialect, part), Repeats()
    for each in EventParser().feed(events[0]):
        assembler.feed(each)

    repeats.learn(events[0], assembler)

    assert repeats.take(b"".join(events[1:])) == len(b"".join(events[1:]))
    for other in (
        b"data: [DONE]" + 2 * line_end,
        b"id: 8" + line_end + events[2],
        events[2].replace(b"index", b"named"),
        part.replace(hole, b'"'),
        events[2][: -2 * len(line_end)],
    ):
        assert repeats.take(events[1] + other) == len(events[1])


def begun(dialect: Dialect, part: bytes) -> Assembler:
    """Return an assembler at the place in a stream where such an event comes."""
    assembler = dialect.assembler()
    if b"tool_calls" in part:
        call = {"index": 0, "id": "t1", "function": {"name": "f", "arguments": ""}}
        for each in EventParser().feed(chunk({"tool_calls": [call]})):
            assembler.feed(each)
    return assembler
