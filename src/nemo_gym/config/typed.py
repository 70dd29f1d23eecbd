"""Plain values and a type in, values of that type out. No I/O.

Lenient where YAML and the environment are: `"8000"` is a whole number, `"true"` a boolean. Strict
where a slip would pass unseen: a number is not text, a boolean is not a number. A number's limits
are part of its type: `Annotated[int, Bounds(ge=1)]`. So is what a text must look like.
"""

import re
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = [
    "Bounds",
    "Pattern",
    "Section",
    "WrongType",
    "coerce",
    "describe",
    "field_types",
    "fits_json",
    "with_defaults",
]


T = TypeVar("T")


class WrongType(ValueError):
    """A value does not have the type it should have; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a number; None: none on that side."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def allow(self, value: object) -> bool:
        """Return whether a number lies within; `nan` does not, and what is none is no matter."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return True
        return (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )

    def __str__(self) -> str:
        if self.ge is not None and self.le is not None:
            return f"from {self.ge:g} to {self.le:g}"
        words = (
            ("from {:g} up", self.ge),
            ("above {:g}", self.gt),
            ("up to {:g}", self.le),
            ("below {:g}", self.lt),
        )
        return " and ".join(text.format(limit) for text, limit in words if limit is not None)


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a text must look like."""

    regex: str
    words: str
    """The same for people: `an http:// or https:// URL`."""

    def allow(self, value: object) -> bool:
        """Return whether a text looks so; what is none is no matter."""
        return not isinstance(value, str) or re.search(self.regex, value) is not None


@dataclass(frozen=True, eq=False, slots=True)
class Section:
    """A section of keys, as a type: those it knows have types of their own, others any."""

    types: Mapping[str, object]


def coerce(value: object, expected: object) -> object:
    """Return `value` as `expected`: a type, union, Literal, list, mapping; raises `WrongType`."""
    origin = get_origin(expected)
    if origin is Annotated:
        return _coerce_bounded(value, expected)
    if isinstance(expected, Section):
        return _as_mapping(value)
    if origin in (Union, types.UnionType):
        return _coerce_union(value, get_args(expected))
    if origin is Literal:
        if any(_is_choice(value, each) for each in get_args(expected)):
            return value
        raise WrongType(describe(expected))
    rule = _RULES.get(origin or expected)
    found = value if rule is None else rule(value)
    if origin is list and isinstance(found, list):
        return [coerce(each, *get_args(expected)) for each in found]
    return found


def describe(expected: object) -> str:
    """Return a type in words: `a whole number`, `text or null`."""
    origin = get_origin(expected)
    if origin is Annotated:
        return _describe_bounded(expected)
    if isinstance(expected, Section):
        return _NAMES[dict]
    if origin in (Union, types.UnionType):
        return " or ".join(describe(each) for each in get_args(expected))
    if origin is Literal:
        return "one of " + ", ".join(map(repr, get_args(expected)))
    if origin is list:
        return f"a list ({' and '.join(map(describe, get_args(expected)))} each)"
    return _NAMES.get(origin or expected, "a value")


@cache
def field_types(cls: Any) -> Mapping[str, object]:
    """Return the types of a dataclass's fields by name."""
    hints = get_type_hints(cls, include_extras=True)
    return {each.name: hints[each.name] for each in fields(cls)}


def with_defaults(cls: type[T], values: object) -> T:
    """Return the dataclass `cls` filled from a tree whose values have been checked.

    Keys it does not know are left out; sections that are dataclasses are filled in the same way.
    """
    given = values if isinstance(values, Mapping) else {}
    filled: dict[str, object] = {}
    shape: Any = cls  # a dataclass; a type variable cannot say so
    for each in fields(shape):
        kind = field_types(shape)[each.name]
        if isinstance(kind, type) and is_dataclass(kind):
            filled[each.name] = with_defaults(kind, given.get(each.name))
        elif each.name in given:
            filled[each.name] = given[each.name]
        elif each.default is MISSING and each.default_factory is MISSING:
            raise TypeError(f"{cls.__name__}.{each.name} has no default")
    return cls(**filled)


def _is_choice(value: object, choice: object) -> bool:
    """Return whether a value means a choice; the environment gives numbers as text."""
    if isinstance(value, bool) or isinstance(choice, bool):
        return value is choice
    return value == choice or (choice is not None and str(value) == str(choice))


def _coerce_bounded(value: object, expected: object) -> object:
    inner, *said = get_args(expected)
    found = coerce(value, inner)
    if all(each.allow(found) for each in said if isinstance(each, Bounds | Pattern)):
        return found
    raise WrongType(describe(expected))


def _describe_bounded(expected: object) -> str:
    """Return a type with its limits in words; those of a number that may be null stand before."""
    inner, *limits = get_args(expected)
    words = [each.words for each in limits if isinstance(each, Pattern)]
    if words:
        return " and ".join(words)
    within = " and ".join(str(each) for each in limits if isinstance(each, Bounds))
    first, null, rest = describe(inner).partition(" or null")
    return f"{first} {within}".rstrip() + null + rest


def _coerce_union(value: object, choices: Sequence[object]) -> object:
    if value is None and type(None) in choices:
        return None
    for choice in choices:
        try:
            return coerce(value, choice)
        except WrongType:
            continue
    raise WrongType(" or ".join(describe(each) for each in choices))


def _as_bool(value: object) -> object:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
        return value.strip().lower() == "true"
    raise WrongType(_NAMES[bool])


def fits_json(number: int) -> bool:
    """Return whether a whole number has at most 64 bits, which is what JSON carries everywhere."""
    return -(1 << 63) <= number < 1 << 64


def _as_int(value: object) -> object:
    number = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    elif isinstance(value, str):
        with suppress(ValueError):
            number = int(value)
    if number is None or not fits_json(number):
        raise WrongType(_NAMES[int])
    return number


def _as_float(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            pass
    raise WrongType(_NAMES[float])


def _as_text(value: object) -> object:
    if isinstance(value, str):
        return value
    raise WrongType(_NAMES[str])


def _as_list(value: object) -> object:
    if isinstance(value, list):
        return value
    raise WrongType(_NAMES[list])


def _as_mapping(value: object) -> object:
    if isinstance(value, Mapping):
        return value
    raise WrongType(_NAMES[dict])


def _as_none(value: object) -> object:
    if value is None:
        return None
    raise WrongType(_NAMES[types.NoneType])


_RULES: Mapping[object, Callable[[object], object]] = {
    bool: _as_bool,
    int: _as_int,
    float: _as_float,
    str: _as_text,
    list: _as_list,
    tuple: _as_list,
    dict: _as_mapping,
    Mapping: _as_mapping,
    types.NoneType: _as_none,
}
_NAMES: dict[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    tuple: "a list",
    dict: "a section of keys",
    Mapping: "a section of keys",
    types.NoneType: "null",
}
