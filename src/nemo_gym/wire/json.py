"""JSON bytes in, plain values out, with types that a strict checker believes; and back.

`isinstance(x, dict)` narrows to a dict of unknowns; the guards here are the one place where such a
value becomes `dict[str, object]` or `list[object]`.

Real servers send JSON that a strict decoder refuses: half of a surrogate pair as an escape (the
other half follows in the next delta), `NaN`, bytes that are not UTF-8. `loads` takes those as
official clients do; `dumps` always gives strict JSON back. A whole number of more than 4300 digits
is JSON, but Python's own reader refuses it: here it is null, and nothing we write has one.
"""

import json
import re
from typing import TypeGuard

import orjson

__all__ = [
    "LENIENT_DECODER",
    "MOST_COUNTED",
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
    "text_of",
    "whole_characters",
]

JsonError = ValueError
"""What `loads` raises."""

_MOST_DIGITS = 4300
"""`sys.get_int_max_str_digits()`, unless someone changed it for one process."""
MOST_COUNTED = (1 << 63) - 1
"""A larger number is no count: nobody could send it on."""
_DIGITS = re.compile(rb"[0-9]")
_TEN = b"0123456789"


def loads(data: bytes | str) -> object:
    """Return the JSON value in `data`, strictly where possible, leniently where not.

    Raises `JsonError`. A byte that is not UTF-8 becomes U+FFFD, as in every browser.
    """
    value: object
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        text = data if isinstance(data, str) else data.decode("utf-8", "replace")
        try:
            # Clients drop a byte order mark at the start.
            value = loads_leniently(text.removeprefix("\ufeff"))
        except RecursionError as error:
            raise JsonError("nested too deeply") from error
    return value


def loads_leniently(text: str) -> object:
    """Return what the standard library reads in `text`, whole numbers of too many digits as None.

    Raises `JsonError` or `RecursionError`.
    """
    value: object = LENIENT_DECODER.decode(text)
    return value


def _whole_number(text: str) -> int | None:
    return int(text) if len(text.removeprefix("-")) <= _MOST_DIGITS else None


LENIENT_DECODER = json.JSONDecoder(parse_int=_whole_number)
"""The decoder of `loads_leniently`."""


def has_number_too_long(data: bytes) -> bool:
    """Say whether Python's own reader refuses the JSON in `data` for the digits of a number."""
    if len(data) <= _MOST_DIGITS:
        return False
    # So long a run has a digit at one of these places, and few bodies have such a run.
    places = (found.start() * _MOST_DIGITS for found in _DIGITS.finditer(data[::_MOST_DIGITS]))
    if not any(_run_around(data, place) > _MOST_DIGITS for place in places):
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
    before = data[max(0, place - _MOST_DIGITS) : place]
    after = data[place : place + _MOST_DIGITS + 1]
    return len(before) - len(before.rstrip(_TEN)) + len(after) - len(after.lstrip(_TEN))


def loads_object(data: bytes | str) -> dict[str, object] | None:
    """Return the JSON object in `data`; None when it is not JSON or not an object."""
    try:
        return as_object(loads(data))
    except JsonError:
        return None


def dumps(value: object) -> bytes:
    """Return `value` as compact UTF-8 JSON without raw newlines.

    Halves of surrogate pairs that met again become one character, others U+FFFD; a number that
    JSON cannot hold becomes null; a key that is not a string becomes one.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(
            _strict(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=str
        ).encode()


def whole_characters(text: str) -> str:
    """Return `text` with halves of surrogate pairs joined where they met, and U+FFFD elsewhere."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _strict(value: object) -> object:
    if isinstance(value, str):
        return whole_characters(value)
    if isinstance(value, float):
        return value if value - value == 0 else None
    if is_object(value):
        return {str(_strict(str(key))): _strict(item) for key, item in value.items()}
    if is_array(value):
        return [_strict(item) for item in value]
    return value


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
