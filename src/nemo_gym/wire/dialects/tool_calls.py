"""Fragments of Chat tool calls in, whole calls out.

Servers disagree on how fragments name their call: by `index` (from 0, from 1, -1, or 0 for every
call), by `id` on the first fragment only, on each, or not at all; on every fragment, or not on the
first. The rules here find the call under every such habit.
"""

from typing import NamedTuple

from nemo_gym.wire.dialects.base import Growing
from nemo_gym.wire.dialects.merge import TextPieces, merge_object
from nemo_gym.wire.json import dumps, is_array, is_object, loads_object

__all__ = ["ToolCalls"]


class _Call:
    """One call under way."""

    __slots__ = (
        "argued",
        "arguments",
        "arguments_key",
        "body",
        "id",
        "index",
        "name",
        "named_again",
        "named_in",
        "other",
        "type",
    )

    def __init__(self, index: object) -> None:
        self.index = index
        self.id: str | None = None
        self.type: str | None = None
        self.name = ""
        self.named_again = False
        """Whether its name came once more after all its arguments."""
        self.named_in = 0
        """Number of the delta in which its name last came."""
        self.body = "function"
        self.arguments_key = "arguments"
        self.arguments = TextPieces()
        self.argued = False
        self.other: dict[str, object] = {}

    def whole(self) -> bool:
        """Whether the arguments so far are a JSON object."""
        return loads_object(self.arguments.text) is not None


class _Sign(NamedTuple):
    """By what a fragment tells which call it belongs to."""

    delta: int
    """Number of the delta that it came in."""
    place: object
    """Its `index`."""
    id: object
    name: object
    argues: bool
    """Whether it brings any arguments."""

    @classmethod
    def of(cls, delta: int, fragment: dict[str, object], body: dict[str, object]) -> "_Sign":
        piece = body.get("arguments", body.get("input"))
        argues = bool(piece.strip() if isinstance(piece, str) else piece)
        call_id = fragment.get("id") or None
        return cls(delta, fragment.get("index"), call_id, body.get("name"), argues)

    def belongs_to(self, calls: list[_Call]) -> _Call | None:
        """Return the call that the fragment goes on with; None: it begins one."""
        for call in reversed(calls):
            if self.id is not None and call.id == self.id:
                if self.place is None or call.index in (None, self.place):
                    return call
            elif self.place is None:
                if self.id is None:
                    # No sign of its own: it goes on with the last call.
                    return None if self._begins_after(call) else call
            elif call.index == self.place:
                # One index for every call: another call begins with an id, or after a whole one.
                if self.id is None:
                    return None if self._begins_after(call) else call
                if not (call.id and self.name):
                    return call
        last = calls[-1] if calls else None
        if last is not None and last.index is None and self.id is None:
            # The first fragment had no index, the later ones have.
            goes_on = self.name in (None, "", last.name) and not self._begins_after(last)
            return last if goes_on else None
        return None

    def _begins_after(self, call: _Call) -> bool:
        """Say whether it belongs to a call of its own, now that `call` has all its arguments."""
        renamed = bool(self.name) and self.name != call.name
        if renamed and call.named_in == self.delta and call.id is None:
            return True
        if renamed or (self.argues and (self.name or call.named_again)):
            return call.whole()
        if self.name and not call.named_again:
            # The name once more: of the same call, or of the next one. What follows tells.
            call.named_again = call.whole()
        return False


class ToolCalls:
    """The tool calls of one message."""

    __slots__ = ("_calls", "_deltas")

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._deltas = 0

    def add(self, fragments: object) -> None:
        """Take the `tool_calls` of one delta: a list, or one fragment without a list around it."""
        self._deltas += 1
        for fragment in fragments if is_array(fragments) else (fragments,):
            if is_object(fragment):
                self._add(fragment)

    def growing(self, fragments: object) -> Growing | None:
        """Say what fragments that were just added add to, if it is one call's arguments alone."""
        fragment = fragments[0] if is_array(fragments) and len(fragments) == 1 else None
        body = fragment.get("function") if is_object(fragment) else None
        if not is_object(fragment) or not is_object(body):
            return None
        # By its id or its name a fragment may begin another call.
        told = {key for key, value in fragment.items() if value is not None}
        if not told <= {"index", "function", "type"} or body.keys() != {"arguments"}:
            return None
        call = _Sign.of(self._deltas, fragment, body).belongs_to(self._calls)
        if call is None or call.named_again or not isinstance(body["arguments"], str):
            return None
        return Growing((0, "function", "arguments"), call.arguments)

    def _add(self, fragment: dict[str, object]) -> None:
        body = fragment.get("function")
        if not is_object(body):
            body = fragment.get("custom")
        body = body if is_object(body) else {}
        call = self._call_of(_Sign.of(self._deltas, fragment, body))
        for key, value in fragment.items():
            if key == "id":
                call.id = call.id or (value if isinstance(value, str) else None)
            elif key == "type":
                call.type = value if isinstance(value, str) else call.type
            elif key in {"function", "custom"}:
                call.body = key
            elif key != "index":
                merge_object(call.other, {key: value})
        _add_body(call, body)

    def _call_of(self, sign: _Sign) -> _Call:
        call = sign.belongs_to(self._calls)
        if call is None:
            call = _Call(sign.place)
            before = self._calls[-1] if self._calls else None
            if before is not None and before.named_again and not sign.name and sign.id is None:
                call.name = before.name
            self._calls.append(call)
        elif call.index is None:
            call.index = sign.place
        if sign.name:
            call.named_in = sign.delta
        return call

    def result(self) -> list[dict[str, object]]:
        """Return the calls, by index where each has one, else in order of appearance."""
        calls = self._calls
        indexes = [call.index for call in calls if type(call.index) is int]
        if len(indexes) == len(calls):
            order = sorted(range(len(calls)), key=indexes.__getitem__)
            calls = [calls[place] for place in order]
        return [_result(call) for call in calls]

    def incomplete(self) -> dict[str, object]:
        """Return id (or place) and text of each function call whose arguments are not JSON."""
        return {
            call.id or f"#{place}": call.arguments.text
            for place, call in enumerate(self._calls)
            if call.body == "function" and call.arguments.text.strip() and not call.whole()
        }


def _add_body(call: _Call, body: dict[str, object]) -> None:
    for key, value in body.items():
        if key == "name":
            # Some servers repeat the whole name with every fragment; others cut it in two.
            if isinstance(value, str) and value != call.name:
                call.name += value
        elif key in {"arguments", "input"}:
            call.arguments_key = key
            if value is not None:
                call.argued = True
                call.arguments.add(value if isinstance(value, str) else dumps(value).decode())
        else:
            merge_object(call.other, {key: value})


def _result(call: _Call) -> dict[str, object]:
    fields: dict[str, object] = {} if call.index is None else {"index": call.index}
    fields["id"] = call.id
    fields["type"] = call.type or call.body
    arguments = call.arguments.text if call.argued else None
    fields[call.body] = {"name": call.name, call.arguments_key: arguments}
    return fields | call.other
