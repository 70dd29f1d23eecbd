"""What a model server reads of tokens off an answer that it passes on."""

import pytest

from nemo_gym.servers.forward_usage import (
    TokenCounts,
    UsageReader,
    quick_counts,
    usage_reader,
)


def read(reader: UsageReader, *pieces: bytes) -> TokenCounts | None:
    for piece in pieces:
        reader.feed(piece)
    return reader.counts()


def test_the_parts_of_a_prompt_and_an_answer_are_told_apart() -> None:
    body = (
        b'{"usage":{"prompt_tokens":100,"completion_tokens":30,"prompt_tokens_details":'
        b'{"cached_tokens":80},"completion_tokens_details":{"reasoning_tokens":20}}}'
    )

    counts = read(UsageReader("chat", stream=False), body)

    assert counts == TokenCounts(100, 30, 80, None, 20)


def test_messages_counts_cached_tokens_as_part_of_the_prompt() -> None:
    body = (
        b'{"usage":{"input_tokens":10,"cache_read_input_tokens":80,'
        b'"cache_creation_input_tokens":5,"output_tokens":3}}'
    )

    counts = read(UsageReader("messages", stream=False), body)

    assert counts == TokenCounts(95, 3, 80, 5, None)


def test_a_stream_that_says_the_prompt_first_and_the_answer_last_is_added_up() -> None:
    counts = read(
        UsageReader("messages", stream=True),
        b'event: message_start\ndata: {"message":{"usage":{"input_tokens":9,"output_tokens":1}}}\n',
        b'\nevent: message_delta\ndata: {"usage":{"input_tokens":null,"output_tokens":44}}\n\n',
    )

    assert counts is not None
    assert (counts.tokens_in, counts.tokens_out) == (9, 44)


@pytest.mark.parametrize("null", [b"null", b" null", b"\tnull"])
def test_a_chunk_that_does_not_say_it_yet_takes_nothing_back(null: bytes) -> None:
    said = b'"usage":{"prompt_tokens":4,"completion_tokens":2}'

    counts = read(
        UsageReader("chat", stream=True),
        b'data: {"usage":' + null + b"}\n\n",
        b'data: {"x":{"usage":' + null + b"}," + said + b"}\n\n",
        b'data: {"usage":' + null + b"}\n\n",
    )

    assert counts == TokenCounts(4, 2)


def test_a_line_too_long_to_keep_costs_the_next_ones_nothing() -> None:
    said = b'data: {"usage":{"prompt_tokens":4}}\n\n'

    counts = read(
        UsageReader("chat", stream=True), *[b"x" * (1 << 20)] * 17, b"x\n\n", said[:9], said[9:]
    )

    assert counts == TokenCounts(4, None)


def test_usage_beside_the_usual_place_is_found() -> None:
    body = b'data: {"x_groq":{"usage":{"prompt_tokens":4,"completion_tokens":2}}}\n\n'

    counts = read(UsageReader("chat", stream=True), body)

    assert counts is not None
    assert (counts.tokens_in, counts.tokens_out) == (4, 2)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b'{"usage":null}',
        b'{"usage":[1]}',
        b'{"message":"usage is high","usage":3}',
        b'{"usage":' + b"[" * 100_000,
        b'{"usage":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
        b"not JSON",
        b'"usage":{"prompt_tokens":4}}',
    ],
    ids=["empty", "null", "null-usage", "list", "text", "deep", "deep-json", "no-json", "half"],
)
def test_a_body_without_usage_says_nothing(body: bytes) -> None:
    assert read(UsageReader("chat", stream=False), body) is None
    assert quick_counts(body, "chat") is None


def test_a_body_too_long_to_keep_says_nothing() -> None:
    reader = UsageReader("chat", stream=False)

    counts = read(reader, *[b" " * (1 << 20)] * 17, b'{"usage":{"prompt_tokens":4}}')

    assert counts is None


@pytest.mark.parametrize(
    ("content_type", "encoding", "looked_into"),
    [
        (b"application/json; charset=utf-8", None, True),
        (b"text/event-stream", None, True),
        (b"application/json", b"gzip", True),
        (b"text/event-stream", b"gzip", False),
        (b"text/html", None, False),
        (b"", None, False),
    ],
)
def test_only_answers_that_may_say_something_are_looked_into(
    content_type: bytes, encoding: bytes | None, looked_into: bool
) -> None:
    assert (usage_reader("chat", content_type, encoding) is not None) == looked_into
