"""A stream whose chunks wait to be read together is the same stream, at every moment."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.wire.dialects import CHAT, DIALECTS, MESSAGES, RESPONSES, Dialect
from nemo_gym.wire.dialects.base import LONGEST_SIGN, StreamState
from nemo_gym.wire.stream import StreamReader
from support.sse import DONE, chunk, cut, event, message_start, typed

_PIECES = st.sampled_from(
    [
        DONE,
        chunk({"content": "a word"}),
        chunk({"content": "an error in the text"}),
        chunk({"content": "x" * 200}, finish="stop"),
        event({"error": {"message": "m" * 60}}),
        event({"message": "m" * 60, "type": "error"}),
        event(b'{"message":"in escapes","type":"\\u0065rror"}'),
        event(b'{"type":"response.complete\\u0064","response":{"id":"r"}}'),
        event("not JSON", "error"),
        typed("response.output_text.delta", output_index=0, content_index=0, delta="word"),
        typed("response.completed", response={"id": "r", "filler": "y" * 60}),
        typed("response.failed", response={"id": "r"}),
        message_start(input_tokens=1),
        typed("content_block_delta", index=0, delta={"type": "text_delta", "text": "word"}),
        typed("ping"),
        typed("message_stop"),
        b"event: message_stop\n\n",
        b": a comment\n\n",
        b"data: {\ndata: }\n\n",
        b"event: error\n",
        b"data: [DO",
        b"\n",
    ]
)
_LINE_END = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(
    st.sampled_from(DIALECTS),
    st.lists(_PIECES, max_size=12),
    _LINE_END,
    st.lists(st.integers(1, 90), min_size=1, max_size=9),
    st.sampled_from([50, 400, 10**9]),
)
def test_a_client_that_reads_line_by_line_is_known_to_have_ended_as_soon_as_without_waiting(
    dialect: Dialect, parts: list[bytes], line_end: bytes, sizes: list[int], together: int
) -> None:
    body = b"".join(parts).replace(b"\n", line_end)
    at_once, waiting = StreamReader(dialect, together=0), StreamReader(dialect, together=together)
    for number, piece in enumerate(cut(body, sizes)):
        state = StreamState.OPEN if waiting.waits(piece) else waiting.feed(piece, float(number))

        assert state is at_once.feed(piece, float(number))
        assert waiting.first_data_at == at_once.first_data_at
        if number % 3 == 0:
            assert waiting.content_complete == at_once.content_complete
        if state is StreamState.ENDED:
            break
    assert waiting.finish() == at_once.finish()
    assert waiting.first_data_at == at_once.first_data_at


@pytest.mark.parametrize(
    ("dialect", "end"),
    [
        (CHAT, DONE),
        (CHAT, event({"error": {"message": "m" * 40}})),
        (MESSAGES, typed("message_stop")),
        (MESSAGES, event({"type": "error", "error": {"message": "m" * 40}})),
        (RESPONSES, typed("response.completed", response={"id": "r" * 40})),
        (RESPONSES, event({"type": "response.incomplete", "response": {"id": "r" * 40}})),
    ],
)
def test_no_two_cuts_hide_an_end(dialect: Dialect, end: bytes) -> None:
    begun = {
        "chat": chunk({"content": "a"}),
        "messages": message_start(),
        "responses": typed("response.created", response={"id": "r"}),
    }
    for first, second in combinations(range(len(end) + 1), 2):
        at_once, waiting = StreamReader(dialect, together=0), StreamReader(dialect)
        state = StreamState.OPEN
        for piece in (begun[dialect.name], end[:first], end[first:second], end[second:]):
            state = StreamState.OPEN if waiting.waits(piece) else waiting.feed(piece, 0.0)

            assert state is at_once.feed(piece, 0.0), (first, second)
        assert state is StreamState.ENDED


def test_of_a_long_stream_nearly_every_chunk_waits() -> None:
    reader, word = StreamReader(CHAT, together=1000), chunk({"content": "word"})

    read = sum(not reader.waits(word) and bool(reader.feed(word, 0.0)) for _ in range(500))

    assert read <= 2 + 500 * len(word) / (1000 - len(word))


def test_every_sign_of_an_end_fits_into_what_is_looked_at_again() -> None:
    for dialect in DIALECTS:
        assembler = dialect.assembler()
        marks = (*assembler.ENDING_NAMES, *assembler.ENDING_MARKS, *assembler.STOPPING_NAMES)

        assert max(map(len, marks)) <= LONGEST_SIGN
        assert all(assembler.may_end(mark) for mark in (*marks, b"[DONE]"))
