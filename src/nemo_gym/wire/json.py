"""JSON bytes in, plain values out, with types that a strict checker believes; and back.

`isinstance(x, dict)` narrows to a dict of unknowns; the guards here are the one place where such a
value becomes `dict[str, object]` or `list[object]`.

Real servers send JSON that a strict decoder refuses: half of a surrogate pair as an escape (the
other half follows in the next delta), `NaN`, bytes that are not UTF-8. `loads` takes those as
official clients do; `dumps` always gives strict JSON back. Whole numbers are kept to the digit,
however large: a decoder that makes floats of those beyond 64 bits would change what a model asked
a tool to do. Only one of more than 4300 digits, which Python's own reader refuses, is null here,
and nothing we write has one.
"""

import json
import re
from collections.abc import Callable
from typing import TypeGuard

import msgspec
import orjson

__all__ = [
    "LENIENT_DECODER",
    "MOST_COUNTED",
    "MOST_DIGITS",
    "JsonError",
    "as_array",
    "as_object",
    "dumps",
    "has_number_too_long",
    "is_array",
    "is_count",
    "is_object",
    "loads",
    "loads_leniently",
    "loads_object",
    "loads_strictly",
    "text_of",
    "whole_characters",
]

JsonError = ValueError
"""What `loads` raises."""

MOST_DIGITS = 4300
"""Most digits of a number that Python's own reader takes: `sys.get_int_max_str_digits()`, unless
someone changed it for one process."""
MOST_COUNTED = (1 << 63) - 1
"""A larger number is no count: nobody could send it on."""
_TOO_DEEP = "nested too deeply"
_DIGITS = re.compile(rb"[0-9]")
_LARGE = re.compile(rb"[0-9]{19}")
_TEN = b"0123456789"
_decode = msgspec.json.Decoder().decode


def loads(data: bytes | str) -> object:
    """Return the JSON value in `data`, strictly where possible, leniently where not.

    Raises `JsonError`. A byte that is not UTF-8 becomes U+FFFD, as in every browser.
    """
    try:
        return loads_strictly(data)
    except JsonError:
        text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    try:
        # Clients drop a byte order mark at the start.
        return loads_leniently(text.removeprefix("\ufeff"))
    except RecursionError as error:
        raise JsonError(_TOO_DEEP) from error


def loads_strictly(data: bytes | str) -> object:
    """Return the JSON value in `data`; raises `JsonError` for everything that JSON does not allow.

    The one decoder of whatever users, models and tools say: numbers stay what they are.
    """
    value: object
    try:
        value = _decode(data)
    except msgspec.MsgspecError as error:
        raise JsonError(str(error)) from None
    except RecursionError:
        return _loads_deep(data)
    return value


def _loads_deep(data: bytes | str) -> object:
    """Decode what nests deeper than Python goes here, by a decoder with a limit of its own.

    That one makes floats of large whole numbers, so it must see none.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    value: object
    try:
        if not _LARGE.search(raw):
            value = orjson.loads(raw)
            return value
    except orjson.JSONDecodeError:
        pass
    raise JsonError(_TOO_DEEP)


def loads_leniently(text: str) -> object:
    """Return what the standard library reads in `text`, whole numbers of too many digits as None.

    Raises `JsonError` or `RecursionError`.
    """
    value: object = LENIENT_DECODER.decode(text)
    return value


def _whole_number(text: str) -> int | None:
    return int(text) if len(text.removeprefix("-")) <= MOST_DIGITS else None


LENIENT_DECODER = json.JSONDecoder(parse_int=_whole_number)
"""The decoder of `loads_leniently`."""


def has_number_too_long(data: bytes) -> bool:
    """Say whether Python's own reader refuses the JSON in `data` for the digits of a number."""
    if len(data) <= MOST_DIGITS:
        return False
    # So long a run has a digit at one of these places, and few bodies have such a run.
    places = (found.start() * MOST_DIGITS for found in _DIGITS.finditer(data[::MOST_DIGITS]))
    if not any(_run_around(data, place) > MOST_DIGITS for place in places):
        return False
    try:
        json.loads(data)
    except RecursionError:
        return False
    except ValueError as error:
        return "digits" in str(error)
    return False


def _run_around(data: bytes, place: int) -> int:
    """Return how many digits stand together at `place`, as far as that matters."""
    before = data[max(0, place - MOST_DIGITS) : place]
    after = data[place : place + MOST_DIGITS + 1]
    return len(before) - len(before.rstrip(_TEN)) + len(after) - len(after.lstrip(_TEN))


def loads_object(data: bytes | str) -> dict[str, object] | None:
    """Return the JSON object in `data`; None when it is not JSON or not an object."""
    try:
        return as_object(loads(data))
    except JsonError:
        return None


def dumps(
    value: object, default: Callable[..., object] | None = None, *, option: int | None = None
) -> bytes:
    """Return `value` as compact UTF-8 JSON without raw newlines.

    Halves of surrogate pairs that met again become one character, others U+FFFD; a number that
    JSON cannot hold becomes null; a key that is not a string becomes one. `default` makes plain
    values of others, or raises `TypeError`; without it they become text. `option` is one of orjson.
    """
    try:
        return orjson.dumps(value, default, option)
    except TypeError:
        # A whole number beyond 64 bits, half a character, or what nobody can write.
        return json.dumps(
            _strict(value, default or str),
            ensure_ascii=False,
            separators=(",", ":"),
            allow_nan=False,
        ).encode()


def whole_characters(text: str) -> str:
    """Return `text` with halves of surrogate pairs joined where they met, and U+FFFD elsewhere."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _strict(value: object, default: Callable[..., object]) -> object:
    if isinstance(value, str):
        return whole_characters(value)
    if isinstance(value, float):
        return value if value - value == 0 else None
    if value is None or isinstance(value, int):
        return value
    if is_object(value):
        return {_strict_key(key): _strict(item, default) for key, item in value.items()}
    if is_array(value) or _is_tuple(value):
        return [_strict(item, default) for item in value]
    try:
        plain = default(value)
    except TypeError:
        plain = loads_strictly(orjson.dumps(value))  # a date or the like, which it knows by itself
    return _strict(plain, default)


def _is_tuple(value: object) -> TypeGuard[tuple[object, ...]]:
    return isinstance(value, tuple)


def _strict_key(key: object) -> object:
    if key is None or isinstance(key, int | float):
        return key  # what the encoder makes text of
    return whole_characters(str(key))


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Say whether `value` is a JSON object (its keys are strings: it came from a decoder)."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[object]]:
    """Say whether `value` is a JSON array."""
    return isinstance(value, list)


def is_count(value: object) -> TypeGuard[int]:
    """Say whether `value` counts something: a whole number of 64 bits, not negative, not a bool."""
    return type(value) is int and 0 <= value <= MOST_COUNTED


def as_object(value: object) -> dict[str, object] | None:
    """Return `value` when it is a JSON object, else None."""
    return value if is_object(value) else None


def as_array(value: object) -> list[object] | None:
    """Return `value` when it is a JSON array, else None."""
    return value if is_array(value) else None


def text_of(value: object) -> str | None:
    """Return `value` when it is a string, else None."""
    return value if isinstance(value, str) else None
