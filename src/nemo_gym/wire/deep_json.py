"""JSON text of any depth in, plain values out; and back. Pure.

Every fast decoder and encoder calls itself for each level, so what it can do hangs on how deep its
caller's stack is already. The loops here do not; they take and give what the standard library does,
some fifty times slower, so they are for what that one gives up on.
"""

import json
import re
from collections.abc import Generator
from json import JSONDecodeError

from nemo_gym.wire.json import LENIENT_DECODER, is_array, is_object

__all__ = ["decode_by_loop", "loads_by_loop", "pieces_by_loop"]

_Entries = Generator[tuple[str, object]]
_SPACE = re.compile(r"[ \t\n\r]*")


def loads_by_loop(text: str) -> object:
    """Return the JSON value that `text` is; raises `JsonError`."""
    value, end = decode_by_loop(text)
    end = _behind_space(text, end)
    if end != len(text):
        raise JSONDecodeError("Extra data", text, end)
    return value


def decode_by_loop(text: str, start: int = 0) -> tuple[object, int]:
    """Return the JSON value that begins at `start`, and where it ends; raises `JsonError`."""
    open_ones: list[_Array | _Object] = []
    place = _behind_space(text, start)
    while True:
        if text.startswith(("[", "{"), place):
            fresh = _Array() if text[place] == "[" else _Object()
            place = _behind_space(text, place + 1)
            if not text.startswith(fresh.end, place):
                open_ones.append(fresh)
                place = fresh.at_value(text, place)
                continue
            value: object = fresh.items
            place += 1
        else:
            value, place = LENIENT_DECODER.raw_decode(text, place)
        while open_ones:
            holder = open_ones[-1]
            holder.take(value)
            place = _behind_space(text, place)
            if text.startswith(",", place):
                place = holder.at_value(text, _behind_space(text, place + 1))
                break
            if not text.startswith(holder.end, place):
                raise JSONDecodeError(f"Expecting ',' or '{holder.end}'", text, place)
            value, place = open_ones.pop().items, place + 1
        else:
            return value, place


def _behind_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return place if found is None else found.end()


class _Array:
    """An array whose end is still to come."""

    __slots__ = ("items",)
    end = "]"

    def __init__(self) -> None:
        self.items: list[object] = []

    def at_value(self, _text: str, place: int) -> int:
        """Return where the value begins of the item that begins at `place`."""
        return place

    def take(self, value: object) -> None:
        self.items.append(value)


class _Object:
    """An object whose end is still to come."""

    __slots__ = ("_key", "items")
    end = "}"

    def __init__(self) -> None:
        self.items: dict[str, object] = {}
        self._key = ""

    def at_value(self, text: str, place: int) -> int:
        """Read the key at `place`; return where its value begins."""
        if not text.startswith('"', place):
            raise JSONDecodeError("Expecting property name enclosed in double quotes", text, place)
        self._key, place = LENIENT_DECODER.raw_decode(text, place)
        place = _behind_space(text, place)
        if not text.startswith(":", place):
            raise JSONDecodeError("Expecting ':' delimiter", text, place)
        return _behind_space(text, place + 1)

    def take(self, value: object) -> None:
        self.items[self._key] = value


def pieces_by_loop(
    value: object, *, ascii_only: bool = True, sort_keys: bool = False
) -> Generator[str]:
    """Yield the text that `json.dumps` makes of `value`, in pieces."""
    open_ones: list[tuple[_Entries, str]] = [(_only(value), "")]
    while open_ones:
        entries, end = open_ones[-1]
        entry = next(entries, None)
        if entry is None:
            open_ones.pop()
            yield end
            continue
        before, inner = entry
        yield before
        if is_object(inner):
            yield "{"
            members = dict(sorted(inner.items())) if sort_keys else inner
            open_ones.append((_members(members, ascii_only), "}"))
        elif is_array(inner):
            yield "["
            open_ones.append((_items(inner), "]"))
        else:
            yield json.dumps(inner, ensure_ascii=ascii_only)


def _only(value: object) -> _Entries:
    yield "", value


def _members(given: dict[str, object], ascii_only: bool) -> _Entries:
    before = ""
    for key, value in given.items():
        yield f"{before}{json.dumps(key, ensure_ascii=ascii_only)}: ", value
        before = ", "


def _items(given: list[object]) -> _Entries:
    before = ""
    for value in given:
        yield before, value
        before = ", "
