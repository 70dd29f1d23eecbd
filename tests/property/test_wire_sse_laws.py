"""Laws of the event parser, for every stream and every way to cut it."""

import re
from itertools import pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.wire.sse import Event, EventParser
from support.reassembly import bytewise

_MARK = b"\xef\xbb\xbf"
_LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
_LINES = st.sampled_from(
    [b"data: a", b"data:b", b"data", b"data: ", b": c", b"event: e", b"event", b"id: 1", b"", b"x"]
)
_STREAMS = st.lists(st.tuples(_LINES, _LINE_ENDS)).map(
    lambda parts: b"".join(line + end for line, end in parts)
)
_ANY = st.one_of(_STREAMS, st.binary(max_size=60), st.text("\r\n:ad te😀\ufeff").map(str.encode))


def _parse(pieces: list[bytes]) -> list[Event]:
    parser = EventParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.finish()


@given(_ANY)
def test_one_byte_at_a_time_is_all_at_once(body: bytes) -> None:
    assert _parse(bytewise(body)) == _parse([body])


@given(_ANY, st.lists(st.integers(0, 60)))
def test_any_cut_is_all_at_once(body: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]

    pieces = [body[a:b] for a, b in pairwise(edges)]

    assert _parse(pieces) == _parse([body])


@given(st.lists(_LINES))
def test_all_line_ends_mean_the_same(lines: list[bytes]) -> None:
    with_lf = _parse([b"".join(line + b"\n" for line in lines)])

    assert _parse([b"".join(line + b"\r\n" for line in lines)]) == with_lf
    assert _parse([b"".join(line + b"\r" for line in lines)]) == with_lf


@given(_STREAMS)
def test_comments_between_events_change_nothing(body: bytes) -> None:
    parser = EventParser()
    events = parser.feed(b": open\n" + body.replace(b"\n\n", b"\n\n: ping\n\n"))

    assert events + parser.finish() == _parse([body])


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n")), min_size=1))
def test_an_event_written_line_by_line_is_read_back(values: list[str]) -> None:
    body = b"".join(f"data: {value}\n".encode() for value in values) + b"\n"

    assert _parse(bytewise(body)) == [Event(None, "\n".join(values).encode())]


def _of_the_standard(body: bytes) -> list[Event]:
    """The events of a body whose only field is data, read whole; the end counts as a blank line."""
    events: list[Event] = []
    data: list[bytes] = []
    for line in [*re.split(rb"\r\n|\n|\r", body.removeprefix(_MARK)), b""]:
        if line.startswith(b"data:"):
            data.append(line.removeprefix(b"data:"))
        elif not line and data:
            events.append(Event(None, b"\n".join(data)))
            data = []
    return events


def test_every_cut_of_every_short_stream_gives_the_events_of_the_standard() -> None:
    ways_on: tuple[list[bytes], ...] = (
        [],
        [b""],
        [b"", b""],
    )  # in the same chunk, in the next, beyond an empty one
    for parts in product([b"\r", b"\n", b"data:a", _MARK], repeat=4):
        for ways in product(ways_on, repeat=3):
            pieces = [parts[0]]
            for way, part in zip(ways, parts[1:], strict=True):
                pieces += way
                pieces[-1] += part

            assert _parse(pieces) == _of_the_standard(b"".join(parts)), pieces
