"""One JSON object a line, seen as its members: each key with the bytes of its value.

A line in, members out, and back. Values are not parsed, so numbers keep their spelling, keys their
order, and a row of 50 KB costs 15 µs instead of 200. No files, no clock.
"""

import json
import math
from collections.abc import Mapping
from typing import NoReturn, TypeAlias

import msgspec
import orjson

from nemo_gym.wire.json import as_object, dumps, has_number_too_long, loads

__all__ = [
    "Members",
    "NotAnObject",
    "count_of",
    "is_object",
    "join_members",
    "members_of",
    "number_of",
    "raw_value",
    "split_members",
    "text_of",
    "value_of",
]

Members: TypeAlias = dict[str, bytes]
"""Top-level keys of a JSON object, in order, each with the bytes of its value."""

_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NUMBER_START = frozenset(b"-0123456789")
_MOST_DIGITS = 18
_TOO_DEEP = "nested too deeply to be read"
_BOOLEANS = {b"true": 1.0, b"false": 0.0}


class NotAnObject(ValueError):
    """The text is not one JSON object; the message says why."""


def split_members(line: bytes) -> Members:
    """Return the members of the JSON object in `line`; raises `NotAnObject`.

    A key given twice counts once, with its last value. A number that Python's own reader refuses
    for its digits becomes null, since what is split here is read by others later.
    """
    try:
        if not line.isascii():
            # The decoder skips over the values, so their encoding is checked here.
            line.decode()
        kept = _readable if has_number_too_long(line) else bytes
        return {key: kept(raw) for key, raw in _DECODER.decode(line).items()}
    except UnicodeDecodeError as error:
        raise NotAnObject(f"not UTF-8: {error.reason} at byte {error.start}") from error
    except msgspec.ValidationError as error:
        raise NotAnObject(f"not a JSON object: {error}") from error
    except msgspec.DecodeError as error:
        return _split_slowly(line, f"not JSON: {error}")
    except RecursionError as error:
        raise NotAnObject(_TOO_DEEP) from error


def _readable(value: msgspec.Raw) -> bytes:
    raw = bytes(value)
    return dumps(loads(raw)) if has_number_too_long(raw) else raw


def _split_slowly(line: bytes, reason: str) -> Members:
    r"""Read what the fast decoder refuses: escapes of half a character, such as `\ud83d`.

    Models do emit them, and the standard library reads them.
    """
    if rb"\ud" not in line.lower():
        raise NotAnObject(reason)
    try:
        value = json.loads(line, parse_constant=_refuse_constant)
    except ValueError as error:
        raise NotAnObject(f"not JSON: {error}") from error
    except RecursionError as error:
        raise NotAnObject(_TOO_DEEP) from error
    members = as_object(value)
    if members is None:
        raise NotAnObject("not a JSON object")
    return {key: json.dumps(item).encode() for key, item in members.items()}


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def join_members(members: Mapping[str, bytes]) -> bytes:
    """Return the object as one line, without the line's end."""
    line = b"{%b}" % b",".join([b"%b:%b" % (_quote(key), raw) for key, raw in members.items()])
    if b"\n" in line or b"\r" in line:
        # A line break can only stand between tokens: inside a string it is escaped.
        line = line.replace(b"\r", b" ").replace(b"\n", b" ")
    return line


def _quote(key: str) -> bytes:
    try:
        return orjson.dumps(key)
    except TypeError:  # half a character, which only the standard library escapes
        return json.dumps(key).encode()


def raw_value(value: object) -> bytes:
    """Return a plain value as the bytes of a member; mappings and tuples are taken too."""
    try:
        return orjson.dumps(value, default=dict)
    except TypeError:  # a number beyond 64 bits, or half a character
        return json.dumps(value, default=dict).encode()


def value_of(raw: bytes) -> object:
    """Return the plain value of a member."""
    return loads(raw)


def is_object(raw: bytes | None) -> bool:
    """Say whether a member is there and is an object."""
    return raw is not None and raw.startswith(b"{")


def members_of(raw: bytes | None) -> Members:
    """Return the members of a nested object; empty when it is absent or something else."""
    if raw is None or not raw.startswith(b"{"):
        return {}
    try:
        return split_members(raw)
    except NotAnObject:
        return {}


def text_of(raw: bytes | None) -> str | None:
    """Return the string of a member; None when it is absent or something else."""
    value = value_of(raw) if raw is not None and raw.startswith(b'"') else None
    return value if isinstance(value, str) else None


def number_of(raw: bytes | None, *, booleans: bool = False) -> float | None:
    """Return the number of a member; None when it is absent, no number, or not finite.

    `booleans` takes true as 1 and false as 0.
    """
    if not raw or raw[0] not in _NUMBER_START:
        return _BOOLEANS.get(raw) if booleans and raw else None
    number = float(raw)
    return number if math.isfinite(number) else None


def count_of(raw: bytes | None) -> int | None:
    """Return the whole number, zero or more, of a member; None when it is anything else."""
    return int(raw) if raw is not None and len(raw) <= _MOST_DIGITS and raw.isdigit() else None
