"""What is learned from an event of a stream, and what is not."""

import pytest

from nemo_gym.wire.dialects import CHAT, RESPONSES, Dialect
from nemo_gym.wire.dialects.merge import TextPieces
from nemo_gym.wire.dialects.tool_calls import ToolCalls
from nemo_gym.wire.repeats import Repeats
from nemo_gym.wire.sse import EventParser
from support.sse import chunk, typed


def learned(event: bytes, dialect: Dialect = CHAT) -> Repeats:
    """Return what repeats after one event."""
    assembler, repeats = dialect.assembler(), Repeats()
    for each in EventParser().feed(event):
        assembler.feed(each)
    repeats.learn(event, assembler)
    return repeats


def test_the_next_event_that_says_the_same_is_taken() -> None:
    assert learned(chunk({"content": "a"})).take(chunk({"content": "b"})) > 0


def test_what_is_no_json_text_is_left_to_who_minds_it() -> None:
    event = chunk({"content": "a"})

    assert learned(event).take(event.replace(b'"a"', b'"a\tb"')) == 0


def test_only_a_number_stands_where_events_are_numbered() -> None:
    def event(number: str) -> bytes:
        said = typed("response.output_text.delta", sequence_number=7, output_index=0, delta="a")
        return said.replace(b": 7", b": " + number.encode())

    repeats = learned(event("7"), RESPONSES)

    assert repeats.take(event("8")) == len(event("8"))
    for other in ('"8"', "08", "null", "-1", "8.5"):
        assert repeats.take(event(other)) == 0


def test_only_letters_and_digits_stand_where_events_are_padded() -> None:
    def event(padding: str) -> bytes:
        return chunk({"content": "a"}, obfuscation=padding)

    repeats = learned(event("xY1"))

    for other in ("", "q", "Zz9"):
        assert repeats.take(event(other)) == len(event(other))
    for other in ("a b", "a-b", "\u00e9", "a\\b"):
        assert repeats.take(event(other)) == 0


@pytest.mark.parametrize(
    "event",
    [
        chunk({"content": "a"})[:-1] + b"\r\n",  # ends in line ends of two kinds
        chunk({"content": "a"}, p="ab", inner={"p": "cd"}),  # which of them is padding?
        chunk({"content": "a"}, filler="x" * 5000),
        chunk({"content": "a"}, deep=[[[[]]]] * 40),
    ],
    ids=["line ends", "padding", "long", "deep"],
)
def test_from_an_event_that_is_no_pattern_nothing_is_learned(event: bytes) -> None:
    assert learned(event).take(event) == 0


def test_a_member_that_is_there_twice_counts_as_its_last() -> None:
    event = chunk({"content": "a"}).replace(b'"content": "a"', b'"content": "a", "content": "a"')

    repeats = learned(event)

    assert repeats.take(event.replace(b'"a"}', b'"b"}')) == len(event)
    assert repeats.take(event.replace(b'"a",', b'"b",')) == 0


def test_a_text_may_begin_with_several_pieces() -> None:
    text = TextPieces()

    text.extend(["a", "a"])

    assert (text.text, text.constant_or_text) == ("aa", "a")


@pytest.mark.parametrize(
    "fragments",
    [
        [{"index": 0, "function": {"arguments": {"a": 1}}}],
        [{"index": 0, "function": {"name": "f", "arguments": "{}"}}, {"index": 0, "function": {}}],
        [{"index": 0, "id": "t2", "function": {"arguments": "{"}}],
        [{"index": 0, "function": "f"}],
        ["f"],
    ],
)
def test_a_fragment_that_may_be_of_another_call_does_not_just_grow(
    fragments: list[object],
) -> None:
    calls = ToolCalls()
    calls.add([{"index": 0, "id": "t1", "function": {"name": "f", "arguments": ""}}])
    calls.add(fragments)

    assert calls.growing(fragments) is None
