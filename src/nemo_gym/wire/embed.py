"""Bytes of a JSON body in, bytes that can stand inside a line of JSON out. Nothing is rebuilt.

A body that is one JSON object is checked and put into the line as it came: number spelling, key
order and escapes stay. Parsing and dumping 58 KB costs ten times as much as this check.
"""

from codecs import utf_8_decode
from typing import NamedTuple

import msgspec

from nemo_gym.wire.json import MOST_DIGITS, JsonError, dumps, has_number_too_long, is_object, loads

__all__ = ["EmbeddedBody", "embed", "embed_strictly"]


class _Peek(msgspec.Struct):
    """The fields of a response that say how it went."""

    status: object = None
    error: object = None


# Pieces of the text that is thrown away; not less, since each is a call.
_PIECE = 16 * 1024
_DECODER = msgspec.json.Decoder(_Peek)


class EmbeddedBody(NamedTuple):
    """One JSON object, ready to stand in a line."""

    json: bytes
    """The object, without line ends."""
    exact: bool
    """Whether `json` is what was sent; False: strict JSON could not hold it, see `embed`."""
    status: object = None
    error: object = None


def embed(body: bytes) -> EmbeddedBody | None:
    """Return the body as it can stand in a line; None when it is not one JSON object.

    A body that lenient readers take and strict ones refuse (half a surrogate pair, `NaN`, bytes
    that are not UTF-8, a number of too many digits) is rebuilt so that every reader takes it.
    """
    strict = embed_strictly(body)
    if strict is None:
        return _rebuilt(body)
    json, status, error = strict
    return EmbeddedBody(json, True, status, error)


def embed_strictly(body: bytes) -> tuple[bytes, object, object] | None:
    """Return the body as it can stand in a line, its `status` and its `error`.

    None when it is not one JSON object that every reader takes.
    """
    try:
        peek = _DECODER.decode(body)
        if not body.isascii():
            _check_utf8(body)  # the decoder does not look into what it skips
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if len(body) > MOST_DIGITS and has_number_too_long(body):
        return None
    # Strings hold no raw line ends, so these stand between tokens.
    return body.replace(b"\n", b"").replace(b"\r", b""), peek.status, peek.error


def _check_utf8(body: bytes) -> None:
    """Raise `UnicodeDecodeError` for what is not UTF-8.

    Piece by piece: half the time of decoding 64 KB at once, since a piece stays in the cache.
    """
    length = len(body)
    if length <= _PIECE:
        utf_8_decode(body)
        return
    start = 0
    while start < length:
        end = start + _PIECE
        _, read = utf_8_decode(body[start:end], "strict", end >= length)
        start += read


def _rebuilt(body: bytes) -> EmbeddedBody | None:
    try:
        value = loads(body)
    except JsonError:
        return None
    if not is_object(value):
        return None
    try:
        rebuilt = dumps(value)
    except RecursionError:
        return None
    return EmbeddedBody(rebuilt, False, value.get("status"), value.get("error"))
