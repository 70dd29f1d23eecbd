"""JSON bytes in, plain values out, with types that a strict checker believes.

`isinstance(x, dict)` narrows to a dict of unknowns; the two guards here are the one place where
such a value becomes `dict[str, object]` or `list[object]`. Decoding follows RFC 8259: `NaN`,
lone surrogates and bytes that are not UTF-8 are errors, never guesses.
"""

from typing import TypeGuard

import orjson

__all__ = [
    "JsonError",
    "as_array",
    "as_object",
    "dumps",
    "is_array",
    "is_count",
    "is_object",
    "loads",
    "loads_object",
    "text_of",
]

JsonError = orjson.JSONDecodeError
"""What `loads` raises; a `ValueError`."""


def loads(data: bytes | str) -> object:
    """Return the JSON value in `data`; raises `JsonError`."""
    value: object = orjson.loads(data)
    return value


def loads_object(data: bytes | str) -> dict[str, object] | None:
    """Return the JSON object in `data`; None when it is not JSON or not an object."""
    try:
        return as_object(orjson.loads(data))
    except JsonError:
        return None


def dumps(value: object) -> bytes:
    """Return `value` as compact UTF-8 JSON without raw newlines."""
    return orjson.dumps(value)


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Say whether `value` is a JSON object (its keys are strings: it came from a decoder)."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[object]]:
    """Say whether `value` is a JSON array."""
    return isinstance(value, list)


def is_count(value: object) -> TypeGuard[int]:
    """Say whether `value` counts something: a whole number, not negative, not a bool."""
    return type(value) is int and value >= 0


def as_object(value: object) -> dict[str, object] | None:
    """Return `value` when it is a JSON object, else None."""
    return value if is_object(value) else None


def as_array(value: object) -> list[object] | None:
    """Return `value` when it is a JSON array, else None."""
    return value if is_array(value) else None


def text_of(value: object) -> str | None:
    """Return `value` when it is a string, else None."""
    return value if isinstance(value, str) else None
