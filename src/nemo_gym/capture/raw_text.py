"""A body as it stands in a line where it is no JSON object: bytes in, a JSON string out. Pure.

Long ones are made in pieces: nobody else's turn comes while one call of a library is under way,
and one that looks through 256 MB takes a second.
"""

from base64 import b64encode
from collections.abc import Generator
from contextlib import suppress
from typing import NamedTuple

import orjson

from nemo_gym.capture.hiding import BodyHider
from nemo_gym.wire.encoding import ContentDecoder, UndecodableBody

__all__ = ["RawText", "base64_text", "plain_text"]

_PIECE = 768 * 1024
"""A multiple of three, so that pieces of base64 can stand side by side."""
_AROUND_EDGE = 8 * 1024
_MOST_BAD = 32
"""Places that are not UTF-8, beyond which a body is no text."""
_ENCODINGS = ("gzip", "deflate", "br", "zstd")
_LOOKED_INTO = 16 * 1024
"""Bytes of a body that is not what it says in which packed secrets are looked for."""
_MOST_UNPACKED = 1 << 20


class RawText(NamedTuple):
    """One body as text."""

    json: list[bytes]
    """A JSON string, in pieces: put together once, with the rest of its line."""
    not_utf8: list[tuple[int, str]]
    """Where bytes were not UTF-8, each place as U+FFFD in the text: offset in the body, and the
    bytes in hexadecimal digits."""
    is_base64: bool = False


class _NoText(Exception):
    """There is too much that is not UTF-8."""


def plain_text(data: bytes, hider: BodyHider | None = None) -> RawText:
    """Return the body as text; what is no text comes as base64. `hider`: for one with secrets."""
    bad: list[tuple[int, str]] = []
    parts = [b'"']
    try:
        for start, end in _pieces(data, hider):
            text = _decoded(data[start:end], start, bad)
            if hider is not None:
                text = hider.text(text)
                if end == len(data):
                    text = hider.beginning(text)
            parts.append(orjson.dumps(text)[1:-1])
    except _NoText:
        return base64_text(data, hider)
    parts.append(b'"')
    return RawText(parts, bad)


def base64_text(data: bytes, hider: BodyHider | None = None, made: bytes = b"") -> RawText:
    """Return the body as base64. `made`: what its content encoding could be undone of."""
    if hider is not None:
        data = _without_secrets(data, hider, made)
    starts = range(0, len(data), _PIECE)
    parts = [b64encode(data[start : start + _PIECE]) for start in starts]
    return RawText([b'"', *parts, b'"'], [], is_base64=True)


def _without_secrets(data: bytes, hider: BodyHider, made: bytes) -> bytes:
    before = hider.hidden
    hidden = _hidden(data, hider)
    if hider.hidden > before:
        return hidden
    readings = (_unpacked(data, encoding) for encoding in _ENCODINGS)
    for reading in (made, *readings):
        hidden = _hidden(reading, hider)
        if hider.hidden > before:  # nothing of the packed bytes can be shown then
            return hidden
    return data


def _hidden(data: bytes, hider: BodyHider) -> bytes:
    parts: list[bytes] = []
    for start, end in _pieces(data, hider):
        piece = hider.data(data[start:end])
        if end == len(data):
            text = piece.decode("utf-8", "surrogateescape")
            piece = hider.beginning(text).encode("utf-8", "surrogateescape")
        parts.append(piece)
    return b"".join(parts)


def _unpacked(data: bytes, encoding: str) -> bytes:
    """Return what can be read of the beginning, were it in that encoding.

    Byte by byte: what decoders make of the bytes before those that they refuse they keep to
    themselves.
    """
    decoder = ContentDecoder([encoding], _MOST_UNPACKED)
    made: list[bytes] = []
    with suppress(UndecodableBody):
        made.extend(decoder.decode(data[at : at + 1]) for at in range(min(len(data), _LOOKED_INTO)))
    return b"".join(made)


def _pieces(data: bytes, hider: BodyHider | None) -> Generator[tuple[int, int]]:
    """Yield start and end of pieces, none of which ends within a character or a secret."""
    start = 0
    while start < len(data):
        end = start + _PIECE
        if end >= len(data):
            yield start, len(data)
            return
        end = _edge(data, end, hider)
        yield start, end
        start = end


def _edge(data: bytes, end: int, hider: BodyHider | None) -> int:
    edge = end
    while end - edge < 3 and data[edge] & 0xC0 == 0x80:
        edge -= 1
    if hider is None:
        return edge
    before = data[edge - _AROUND_EDGE : edge].decode("utf-8", "surrogateescape")
    after = data[edge : edge + _AROUND_EDGE].decode("utf-8", "surrogateescape")
    cut = hider.cut_outside_secrets(before + after, len(before))
    return edge - len(before[cut:].encode("utf-8", "surrogateescape"))


def _decoded(data: bytes, offset: int, bad: list[tuple[int, str]]) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        pass
    made: list[str] = []
    start = 0
    while True:
        try:
            made.append(data[start:].decode())
        except UnicodeDecodeError as problem:
            first, last = start + problem.start, start + problem.end
            made += (data[start:first].decode(), "\ufffd")
            bad.append((offset + first, data[first:last].hex()))
            start = last
        else:
            return "".join(made)
        if len(bad) > _MOST_BAD:
            raise _NoText
