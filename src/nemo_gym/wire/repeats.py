"""Events of a stream that differ from the one before in a piece of text, read many at a time.

Most events of a stream say again what the last one said, but for the piece by which one text grows
(and padding, or a number that counts them). What stays the same is learned from one event and
tried on the next bytes: where they are the same again, the pieces between them are all there is to
read. Pure. What is taken here is what an assembler would have made of these events one by one; all
that is not the same to the byte is left to it.
"""

import re
from itertools import pairwise
from typing import NamedTuple

import orjson

from nemo_gym.wire.dialects.base import Assembler, Growing, kind_of
from nemo_gym.wire.json import JsonError, dumps, is_object, loads_strictly
from nemo_gym.wire.sse import EventParser

__all__ = ["Repeats"]

# What looks like a member of an object: its name, and what is between the quotes of its value.
_STRING = re.compile(rb'"([^"\\]*)"\s*:\s*"((?:[^"\\]|\\.)*)"')
_NUMBER = re.compile(rb'"([^"\\]*)"\s*:\s*(\d+)(?![\d.eE])')
_QUOTE, _BACKSLASH = b'"', b"\\"
_BLANK_LINES = (b"\n\n", b"\r\n\r\n")
_OTHER_TEXT, _OTHER_PADDING, _OTHER_NUMBER = b"another text", b"0padding0", b"90817263"
_MOST_IN_VAIN = 3
"""A stream whose events are not alike is not learned from again and again."""
_LONGEST = 4096
"""An event longer than this is not worth keeping for comparison, in bytes."""
_DEEPEST = 64
"""What is nested more deeply assemblers may not be able to compare."""


class _Gap(NamedTuple):
    """A part of an event that is another one each time."""

    start: int
    end: int
    name: bytes
    """Of the member whose value it is."""
    other: bytes
    """What could stand there as well."""


class _Record(NamedTuple):
    """What events have in common, in order."""

    first: bytes
    """From the beginning of an event to its first gap."""
    between: tuple[bytes, ...]
    """From gap to gap."""
    last: bytes
    """From the last gap to the blank line."""
    blank: bytes
    """The end of the last line, and the blank one."""
    text: int
    """Which of the gaps is the piece of text."""
    numbers: frozenset[int]
    """Which of the gaps are numbers."""


class Repeats:
    """Reads what repeats in one stream. Where other events are read, `forget` comes first."""

    __slots__ = ("_growing", "_in_vain", "_record")

    def __init__(self) -> None:
        self._record: _Record | None = None
        self._growing: Growing | None = None
        self._in_vain = 0

    def take(self, data: bytes) -> int:
        """Read the events that `data` begins with, whole ones; return how many bytes they took."""
        record, growing = self._record, self._growing
        if record is None or growing is None or not data.startswith(record.first):
            return 0
        first, last = record.first, record.last
        start, end = len(first), len(last)
        least = start + end
        events = data.split(record.blank)
        events.pop()  # what has no blank line behind it
        alike: list[bytes] = []
        for event in events:
            if len(event) < least or not (event.startswith(first) and event.endswith(last)):
                break
            alike.append(event[start:-end])
        texts = _texts(alike, record)
        if not texts:
            return 0
        growing.texts.extend(texts)
        self._in_vain = 0
        return sum(map(len, alike[: len(texts)])) + len(texts) * (least + len(record.blank))

    def forget(self) -> None:
        """Know nothing any more: events are read that may be others."""
        self._record = self._growing = None

    def learn(self, data: bytes, assembler: Assembler) -> None:
        """Learn from the last event of `data`, which ends with it and which `assembler` has had."""
        self.forget()
        if self._in_vain >= _MOST_IN_VAIN:
            return
        self._in_vain += 1
        blank = next((b for b in reversed(_BLANK_LINES) if data.endswith(b)), None)
        if blank is None:
            return
        start = data.rfind(blank, 0, len(data) - len(blank))
        event = data[start + len(blank) if start >= 0 else 0 :]
        if len(event) > _LONGEST or event.count(b"{") + event.count(b"[") > _DEEPEST:
            return
        found = _only_value(event)
        if found is None:
            return
        growing = assembler.growing(*found)
        if growing is not None:
            self._growing = growing
            self._record = _learned(event, blank, found[0], (growing, assembler.MEANINGLESS))


def _texts(parts: list[bytes], record: _Record) -> list[str]:
    """Return the pieces of text of events, up to the first that is another kind of event."""
    pieces = parts if not record.between else _texts_among(parts, record)
    joined = b'","'.join(pieces)
    if pieces and _BACKSLASH not in joined and joined.count(_QUOTE) == 2 * len(pieces) - 2:
        try:
            texts: list[str] = orjson.loads(b'["' + joined + b'"]')
        except orjson.JSONDecodeError:
            return _one_by_one(pieces)
        return texts
    return _one_by_one(pieces)


def _one_by_one(pieces: list[bytes]) -> list[str]:
    texts: list[str] = []
    for piece in pieces:
        try:
            text = orjson.loads(_QUOTE + piece + _QUOTE)
        except orjson.JSONDecodeError:
            break
        texts.append(text)
    return texts


def _texts_among(parts: list[bytes], record: _Record) -> list[bytes]:
    pieces: list[bytes] = []
    for part in parts:
        piece = _text_among(part, record)
        if piece is None:
            break
        pieces.append(piece)
    return pieces


def _text_among(part: bytes, record: _Record) -> bytes | None:
    """Return the piece of text of an event with more gaps, None where another does not fit."""
    gaps: list[bytes] = []
    for literal in record.between:
        gap, found, part = part.partition(literal)
        if not found:
            return None
        gaps.append(gap)
    gaps.append(part)
    for place, gap in enumerate(gaps):
        if place in record.numbers:
            if not _is_number(gap):
                return None
        elif place != record.text and not _is_padding(gap):
            return None
    return gaps[record.text]


def _is_number(gap: bytes) -> bool:
    return gap.isdigit() and not (gap.startswith(b"0") and len(gap) > 1)


def _is_padding(gap: bytes) -> bool:
    return not gap or gap.isalnum()


def _only_value(event: bytes) -> tuple[dict[str, object], str] | None:
    """Return the JSON object and the kind of the one event in `event`; None where it is another."""
    parser = EventParser()
    events = parser.feed(event)
    if len(events) != 1 or parser.name is not None or parser.data or parser.partial:
        return None
    try:
        value = loads_strictly(events[0].data or b"")
    except JsonError:
        return None
    return (value, kind_of(value, events[0].name)) if is_object(value) else None


def _learned(
    event: bytes, blank: bytes, value: dict[str, object], found: tuple[Growing, frozenset[str]]
) -> _Record | None:
    """Return what other events have in common with this one; None where that cannot be told."""
    growing, meaningless = found
    strings = [_Gap(*found.span(2), found[1], _OTHER_TEXT) for found in _STRING.finditer(event)]
    numbers = [_Gap(*found.span(2), found[1], _OTHER_NUMBER) for found in _NUMBER.finditer(event)]
    paddings = {name.encode() for name in meaningless if name in value}
    padded = [
        gap._replace(other=_OTHER_PADDING)
        for gap in strings
        if gap.name in paddings and _is_padding(event[gap.start : gap.end])
    ]
    others = padded + [gap for gap in numbers if gap.name in paddings]
    name = str(growing.path[-1]).encode()
    for text in (gap for gap in strings if gap.name == name):
        gaps = sorted([text, *others])
        if _is_sure(event, gaps, value, growing, others):
            return _record_of(event, blank, gaps, gaps.index(text))
    return None


def _is_sure(
    event: bytes,
    gaps: list[_Gap],
    value: dict[str, object],
    growing: Growing,
    paddings: list[_Gap],
) -> bool:
    """Say whether with other things in the gaps the text is another one, and so is the padding.

    Where a gap lies was told by the look of it; this is what makes it sure.
    """
    changed, at = b"", 0
    for gap in gaps:
        changed, at = changed + event[at : gap.start] + gap.other, gap.end
    found = _only_value(changed + event[at:])
    expected = loads_strictly(dumps(value))
    _put(expected, growing.path, loads_strictly(_QUOTE + _OTHER_TEXT + _QUOTE))
    for gap in paddings:
        is_text = gap.other is _OTHER_PADDING
        other = loads_strictly(_QUOTE + gap.other + _QUOTE if is_text else gap.other)
        _put(expected, (gap.name.decode(),), other)
    return found is not None and found[0] == expected


def _put(value: object, path: tuple[str | int, ...], what: object) -> None:
    for place in path[:-1]:
        value = value[place]  # type: ignore[index]  # an assembler has just read the event so
    value[path[-1]] = what  # type: ignore[index]  # as above


def _record_of(event: bytes, blank: bytes, gaps: list[_Gap], text: int) -> _Record:
    return _Record(
        first=event[: gaps[0].start],
        between=tuple(event[gap.end : following.start] for gap, following in pairwise(gaps)),
        last=event[gaps[-1].end : -len(blank)],
        blank=blank,
        text=text,
        numbers=frozenset(place for place, gap in enumerate(gaps) if gap.other is _OTHER_NUMBER),
    )
