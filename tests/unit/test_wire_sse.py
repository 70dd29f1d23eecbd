"""An event stream is cut into events as the WHATWG standard has it."""

import pytest

from nemo_gym.wire.sse import Event, EventParser


def _parse(*chunks: bytes) -> list[Event]:
    parser = EventParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events + parser.finish()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_every_line_end_ends_a_line(end: bytes) -> None:
    lines = [b"event: a", b"data: 1", b"", b"data: 2", b"", b""]

    assert _parse(end.join(lines)) == [Event(b"a", b"1"), Event(None, b"2")]


def test_a_line_feed_after_a_chunk_that_ends_in_cr_is_half_of_its_line_end() -> None:
    parser = EventParser()

    assert parser.feed(b"data: 1\r") == []
    assert parser.feed(b"\ndata: 2\r") == []
    assert parser.feed(b"\n\r") == [Event(None, b"1\n2")]
    assert parser.feed(b"\n") == []


def test_a_blank_line_made_of_a_lone_cr_dispatches_at_once() -> None:
    assert EventParser().feed(b"data: 1\r\r") == [Event(None, b"1")]


def test_an_empty_chunk_between_cr_and_lf_changes_nothing() -> None:
    parser = EventParser()

    assert parser.feed(b"data: 1\r") == []
    assert parser.feed(b"") == []
    assert parser.feed(b"\n\r\n") == [Event(None, b"1")]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b"data: x", b"x"),
        (b"data:x", b"x"),
        (b"data:  x", b" x"),
        (b"data:", b""),
        (b"data", b""),
        (b"data::x", b":x"),
        (b"data: :x", b":x"),
        (b"data: x  ", b"x  "),
    ],
)
def test_a_value_loses_one_leading_space(line: bytes, value: bytes) -> None:
    assert _parse(line + b"\n\n") == [Event(None, value)]


def test_data_lines_of_one_event_are_joined_by_a_line_feed() -> None:
    assert _parse(b'data: {"a":\ndata: 1}\n\n') == [Event(None, b'{"a":\n1}')]


@pytest.mark.parametrize(
    "line", [b": comment", b":", b"id: 7", b"retry: 10", b"unknown: x", b"databank: 1", b"nocolon"]
)
def test_comments_and_other_fields_add_nothing(line: bytes) -> None:
    body = line + b"\ndata: 1\n" + line + b"\n\n" + line + b"\n\n"

    assert _parse(body) == [Event(None, b"1")]


def test_an_event_without_data_is_told_as_such_and_its_name_does_not_stay() -> None:
    assert _parse(b"event: a\n\ndata: 1\n\n\n") == [Event(b"a", None), Event(None, b"1")]


@pytest.mark.parametrize(
    ("line", "name"), [(b"event:a", b"a"), (b"event: ", None), (b"event", None)]
)
def test_the_last_name_counts_and_an_empty_one_is_none(line: bytes, name: bytes | None) -> None:
    assert _parse(b"event: z\n" + line + b"\ndata: 1\n\n") == [Event(name, b"1")]


@pytest.mark.parametrize("cut", range(4))
def test_a_byte_order_mark_at_the_start_is_dropped_however_it_is_cut(cut: int) -> None:
    body = b"\xef\xbb\xbfdata: 1\n\n"

    assert _parse(body[:cut], body[cut:]) == [Event(None, b"1")]


def test_what_only_begins_like_a_byte_order_mark_is_kept() -> None:
    assert _parse(b"\xef", b"\xbb\n", b"data: 1\n\n") == [Event(None, b"1")]
    assert _parse(b"data: 1\n\n\xef\xbb\xbfdata: 2\n\n") == [Event(None, b"1")]


def test_a_stream_of_half_a_byte_order_mark_holds_nothing() -> None:
    assert _parse(b"\xef\xbb") == []


@pytest.mark.parametrize("body", [b"data: 1\n", b"data: 1", b"event: a\ndata: 1\r"])
def test_the_end_of_the_stream_ends_the_last_event(body: bytes) -> None:
    [event] = _parse(body)

    assert event.data == b"1"


def test_lines_of_an_unfinished_event_show() -> None:
    parser = EventParser()

    parser.feed(b"event: message_stop\ndata: {}\nda")
    assert (parser.name, parser.data, parser.partial) == (b"message_stop", [b"{}"], b"da")

    parser.feed(b"t")
    assert parser.partial == b"dat"

    parser.feed(b"a: 1\n\n")
    assert (parser.name, parser.data, parser.partial) == (None, [], b"")


@pytest.mark.parametrize("text", ["é", "€", "😀"])
def test_a_character_may_be_cut_anywhere(text: str) -> None:
    body = f"data: a{text}b\n\n".encode()

    for cut in range(len(body)):
        assert _parse(body[:cut], body[cut:]) == [Event(None, f"a{text}b".encode())]
