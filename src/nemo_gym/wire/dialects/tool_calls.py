"""Fragments of Chat tool calls in, whole calls out.

Servers disagree on how fragments name their call: by `index` (from 0, from 1, -1, or 0 for every
call), by `id` on the first fragment only, on each, or not at all. The rules here find the call
under every such habit.
"""

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
        "other",
        "type",
    )

    def __init__(self, index: object) -> None:
        self.index = index
        self.id: str | None = None
        self.type: str | None = None
        self.name = ""
        self.body = "function"
        self.arguments_key = "arguments"
        self.arguments = TextPieces()
        self.argued = False
        self.other: dict[str, object] = {}

    def whole(self) -> bool:
        """Whether the arguments so far are a JSON object."""
        return loads_object(self.arguments.text) is not None


class ToolCalls:
    """The tool calls of one message."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def add(self, fragments: object) -> None:
        """Take the `tool_calls` of one delta."""
        for fragment in fragments if is_array(fragments) else ():
            if is_object(fragment):
                self._add(fragment)

    def _add(self, fragment: dict[str, object]) -> None:
        body = fragment.get("function")
        if not is_object(body):
            body = fragment.get("custom")
        body = body if is_object(body) else {}
        call = self._call_of(fragment, body)
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

    def _call_of(self, fragment: dict[str, object], body: dict[str, object]) -> _Call:
        index, call_id, name = fragment.get("index"), fragment.get("id"), body.get("name")
        for call in reversed(self._calls):
            same_index = index is not None and call.index == index
            same_id = bool(call_id) and call.id == call_id
            if index is None and not call_id:
                # No sign of its own: it goes on with the last call, unless that has all it needs.
                if name and call.whole():
                    break
                return call
            if (same_id and (index is None or same_index)) or (
                same_index and not (call_id and call.id and call.id != call_id and name)
            ):
                return call
        call = _Call(index)
        self._calls.append(call)
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
