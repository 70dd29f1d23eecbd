"""Events of one Responses output item in, the item out.

The item comes whole with `response.output_item.done`; until then it is what
`response.output_item.added` gave, plus the texts that grew since.
"""

from dataclasses import dataclass

from nemo_gym.wire.dialects.base import Growing
from nemo_gym.wire.dialects.merge import TextPieces
from nemo_gym.wire.json import is_array, is_object

__all__ = ["Item", "fills_item", "item_type_of"]


@dataclass(frozen=True, slots=True)
class _Growth:
    """Where the text of a family of events (`….delta`, `….done`) belongs in its item."""

    item: str
    """Type of the item, for a stream that never announced it."""
    path: tuple[str, ...]
    """Keys from the item to the text, or to the list that holds it."""
    index: str | None = None
    """Field of the event that names the entry of the list."""
    part: str | None = None
    """Type of that entry; None: the entry is the text itself."""
    field: str = "text"
    """Field of the entry, and of the `….done` event, that holds the text."""


_GROWTHS = {
    "response.output_text": _Growth("message", ("content",), "content_index", "output_text"),
    "response.refusal": _Growth("message", ("content",), "content_index", "refusal", "refusal"),
    "response.reasoning_text": _Growth(
        "reasoning", ("content",), "content_index", "reasoning_text"
    ),
    "response.reasoning_summary_text": _Growth(
        "reasoning", ("summary",), "summary_index", "summary_text"
    ),
    "response.function_call_arguments": _Growth("function_call", ("arguments",), field="arguments"),
    "response.mcp_call_arguments": _Growth("mcp_call", ("arguments",), field="arguments"),
    "response.custom_tool_call_input": _Growth("custom_tool_call", ("input",), field="input"),
    "response.code_interpreter_call_code": _Growth(
        "code_interpreter_call", ("code",), field="code"
    ),
    "response.apply_patch_call_operation_diff": _Growth(
        "apply_patch_call", ("operation", "diff"), field="diff"
    ),
    "response.shell_call_command": _Growth(
        "shell_call", ("action", "commands"), "command_index", field="command"
    ),
}
# Spellings of earlier versions of the protocol, which some servers still send.
_GROWTHS.update(
    {
        "response.reasoning": _GROWTHS["response.reasoning_text"],
        "response.reasoning_summary": _GROWTHS["response.reasoning_summary_text"],
        "response.mcp_call.arguments": _GROWTHS["response.mcp_call_arguments"],
        "response.code_interpreter_call.code": _GROWTHS["response.code_interpreter_call_code"],
    }
)
_SHELL_OUTPUT = "response.shell_call_output_content"
_ANNOTATION = "response.output_text.annotation.added"
# Events that open or close an entry of a list in the item: the list, and what names the entry.
_PARTS = {
    "response.content_part": ("content", "content_index"),
    "response.reasoning_part": ("content", "content_index"),
    "response.reasoning_summary_part": ("summary", "summary_index"),
}


def fills_item(kind: str) -> bool:
    """Say whether an event of this kind tells something that its item would hold."""
    root = kind.rpartition(".")[0]
    return root in _GROWTHS or root in _PARTS or root == _SHELL_OUTPUT or kind == _ANNOTATION


def item_type_of(kind: str) -> str | None:
    """Return the type of item that an event of this kind fills; None when it fills none."""
    root = kind.rpartition(".")[0]
    if root == _SHELL_OUTPUT:
        return "shell_call_output"
    growth = _GROWTHS.get(root)
    return growth.item if growth is not None else None


class Item:
    """One output item under way."""

    __slots__ = ("_fields", "_logprobs", "_printed", "_texts", "done")

    def __init__(self, fields: dict[str, object]) -> None:
        self._fields = fields
        self._texts: dict[tuple[str, int], TextPieces] = {}
        self._logprobs: dict[int, list[object]] = {}
        self._printed = False
        self.done = False

    @property
    def id(self) -> object:
        """The item's id, where it has one."""
        return self._fields.get("id")

    @property
    def told(self) -> bool:
        """Whether the item is whole, or some of what it says has come, if only with its name."""
        whole = self.done or self._fields.get("status") == "completed"
        return whole or self._printed or bool(self._texts) or _says(self._fields)

    def finish(self, fields: dict[str, object]) -> None:
        """Take the whole item."""
        self._fields = fields
        self._texts = {}
        self._logprobs = {}
        self.done = True

    def take(self, kind: str, event: dict[str, object]) -> None:
        """Take an event that fills the item; others tell nothing that the item would hold."""
        root, _, step = kind.rpartition(".")
        growth = _GROWTHS.get(root)
        if self.done:
            return
        if growth is not None:
            self._grow(root, growth, step, event)
        elif root in _PARTS and is_object(event.get("part")):
            entries, index = _PARTS[root]
            self._entry(entries, _place(event.get(index))).update(_object(event.get("part")))
        elif root == _SHELL_OUTPUT:
            self._shell_output(step, event)
        elif kind == _ANNOTATION:
            part = self._entry("content", _place(event.get("content_index")))
            found = part.get("annotations")
            part["annotations"] = [*(found if is_array(found) else []), event.get("annotation")]

    def growing(self, kind: str, event: dict[str, object]) -> Growing | None:
        """Say what an event that was just taken adds to; see `Assembler.growing`."""
        root, _, step = kind.rpartition(".")
        growth = _GROWTHS.get(root)
        told_more = self.done or step != "delta" or event.get("logprobs")
        if growth is None or told_more or not isinstance(event.get("delta"), str):
            return None
        place = _place(event.get(growth.index)) if growth.index is not None else 0
        text = self._texts.get((root, place))
        return None if text is None else Growing(("delta",), text)

    def _grow(self, root: str, growth: _Growth, step: str, event: dict[str, object]) -> None:
        place = _place(event.get(growth.index)) if growth.index is not None else 0
        text = self._texts.get((root, place))
        if text is None or step == "done":
            text = self._texts[root, place] = TextPieces()
        piece = event.get("delta" if step == "delta" else growth.field)
        if isinstance(piece, str):
            text.add(piece)
        logprobs = event.get("logprobs")
        if logprobs and is_array(logprobs):
            if step == "done":  # all of them
                self._logprobs[place] = []
            self._logprobs.setdefault(place, []).extend(logprobs)

    def _shell_output(self, step: str, event: dict[str, object]) -> None:
        """Take what a command printed: text that grows until it comes whole."""
        self._printed = True
        entry = self._entry("output", _place(event.get("command_index")))
        whole = event.get("output")
        if step == "done" and is_array(whole) and whole:
            entry.clear()
            entry.update(_object(whole[0]))
            return
        for stream, piece in _object(event.get("delta")).items():
            before = entry.get(stream)
            if isinstance(piece, str):
                entry[stream] = (before if isinstance(before, str) else "") + piece

    def _entry(self, key: str, place: int) -> dict[str, object]:
        """Return the entry at `place` of the list `key`, made where it is missing."""
        entries = self._fields.get(key)
        if not is_array(entries):
            entries = self._fields[key] = []
        while len(entries) <= place:
            entries.append({})
        entry = entries[place]
        if not is_object(entry):
            entry = entries[place] = {}
        return entry

    def result(self) -> dict[str, object]:
        """Return the item as far as it has come."""
        for (root, place), text in self._texts.items():
            growth = _GROWTHS[root]
            if growth.part is not None:
                entry = self._entry(growth.path[0], place)
                entry.setdefault("type", growth.part)
                entry[growth.field] = text.text
            else:
                _put(self._fields, growth, place, text.text)
        for place, logprobs in self._logprobs.items():
            self._entry("content", place)["logprobs"] = logprobs
        for key in ("content", "summary"):
            entries = self._fields.get(key)
            if is_array(entries) and not self.done:
                # Some servers count the parts of two items together; that leaves no part empty.
                self._fields[key] = [entry for entry in entries if entry != {}]
        return self._fields


def _put(fields: dict[str, object], growth: _Growth, place: int, text: str) -> None:
    *parents, last = growth.path
    for key in parents:
        inner = fields.get(key)
        if not is_object(inner):
            inner = {}
            fields[key] = inner
        fields = inner
    if growth.index is None:
        fields[last] = text
        return
    entries = fields.get(last)
    entries = entries if is_array(entries) else []
    fields[last] = [*entries[:place], *[""] * (place - len(entries)), text, *entries[place + 1 :]]


# A place beyond this is nonsense, and would make a list of that length.
_MOST_PARTS = 4096


def _place(index: object) -> int:
    return index if type(index) is int and 0 <= index < _MOST_PARTS else 0


# Fields of items, and of their parts, that are what the model says.
_SAID = frozenset(
    {"arguments", "code", "content", "input", "output", "refusal", "result", "summary", "text"}
)


def _says(fields: dict[str, object]) -> bool:
    """Say whether an item or a part has some of what it is there to say."""
    for key in _SAID & fields.keys():
        value = fields[key]
        if is_array(value) and any(_says(part) if is_object(part) else part for part in value):
            return True
        if value and isinstance(value, str):
            return True
    return False


def _object(value: object) -> dict[str, object]:
    return value if is_object(value) else {}
