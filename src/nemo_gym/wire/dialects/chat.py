"""Chat Completions: `POST /v1/chat/completions`.

A stream is a row of chunks that end with `data: [DONE]`. All choices are assembled, by index.
"""

from nemo_gym.wire.dialects.base import (
    Assembler,
    Dialect,
    ErrorFacts,
    Growing,
    StreamState,
    openai_error,
)
from nemo_gym.wire.dialects.merge import Pieces, TextPieces, merge_entries
from nemo_gym.wire.dialects.tool_calls import ToolCalls
from nemo_gym.wire.json import is_array, is_object, text_of

__all__ = ["CHAT", "ChatAssembler"]

# Fields of a message whose text grows; an unknown one is taken to grow unless it never changes.
_TEXTS = frozenset({"content", "refusal", "reasoning", "reasoning_content", "thinking"})
# The first value that says something stands: later chunks of some servers carry another id.
_FIRST = frozenset({"id", "model", "created"})
_DROPPED = frozenset({"object", "error"})
_FOREIGN = ("response.", "message_", "content_block_")


class _Choice:
    """One choice under way."""

    __slots__ = ("calls", "function_call", "logprobs", "other", "parts", "pieces", "role", "text")

    def __init__(self) -> None:
        self.role: str | None = None
        self.pieces = Pieces()
        self.parts: list[object] = []
        self.calls: ToolCalls | None = None
        self.function_call: ToolCalls | None = None
        self.logprobs: object = None
        self.text: TextPieces | None = None
        """Text that stands beside the message, as completions of old had it."""
        self.other: dict[str, object] = {}

    def take(self, choice: dict[str, object]) -> None:
        """Take one chunk's entry for this choice; the entry is used up."""
        delta, message = choice.pop("delta", None), choice.pop("message", None)
        if not is_object(delta):
            # A server that does not really stream may send the message as a whole.
            delta = message
        if is_object(delta):
            for key, piece in delta.items():
                if key == "content":
                    self._content(piece)
                elif key == "role":
                    self.role = self.role or text_of(piece)
                else:
                    self._take(key, piece)
        for key, value in choice.items():
            if value is not None and key != "index":
                self._keep(key, value)

    def _keep(self, key: str, value: object) -> None:
        """Keep a field of the choice itself: lists grow, the last of other values stands."""
        if key == "logprobs":
            self.logprobs = _joined(self.logprobs, value)
        elif key == "text" and isinstance(value, str):
            self.text = self.text or TextPieces()
            self.text.add(value)
        elif is_array(value):
            old = self.other.get(key)
            if is_array(old):
                old.extend(value)
            else:
                self.other[key] = value
        elif value not in ("", {}):
            self.other[key] = value

    def _take(self, key: str, piece: object) -> None:
        if key == "tool_calls":
            if piece:
                self.calls = self.calls or ToolCalls()
                self.calls.add(piece)
        elif key == "function_call":
            if piece:
                self.function_call = self.function_call or ToolCalls()
                self.function_call.add([{"function": piece}])
        else:
            self.pieces.add(key, piece)

    def _content(self, piece: object) -> None:
        if is_array(piece):
            merge_entries(self.parts, piece)
        elif self.parts and isinstance(piece, str):
            if piece:
                merge_entries(self.parts, [{"type": "text", "text": piece}])
        else:
            self.pieces.add("content", piece)

    def growing(self, choice: dict[str, object]) -> Growing | None:
        """Say what an entry that was just taken adds to; see `Assembler.growing`."""
        delta = choice.get("delta")
        if not is_object(delta) or not all(
            key in ("delta", "index") or _says_it_again(key, value) for key, value in choice.items()
        ):
            return None
        # What is empty, or a role, changes nothing when it comes once more.
        grown = [key for key, piece in delta.items() if piece and key != "role"]
        if len(grown) != 1:
            return None
        [key], piece = grown, delta[grown[0]]
        if key == "tool_calls":
            found = None if self.calls is None else self.calls.growing(piece)
            return None if found is None else found._replace(path=("delta", key, *found.path))
        text = self.pieces.text(key)
        if not isinstance(piece, str) or text is None or (key == "content" and self.parts):
            return None
        return Growing(("delta", key), text)

    def result(self, index: int) -> dict[str, object]:
        """Return the choice as it would have been sent without streaming."""
        message: dict[str, object] = {"role": self.role or "assistant", "content": None}
        message |= {"refusal": None} | self.pieces.fields(_TEXTS)
        if self.parts:
            text = message["content"]
            message["content"] = merge_entries(
                [{"type": "text", "text": text}] if text else [], self.parts
            )
        if self.calls is not None:
            message["tool_calls"] = self.calls.result()
        if self.function_call is not None:
            message["function_call"] = self.function_call.result()[0]["function"]
        choice: dict[str, object] = {"index": index, "message": message, "finish_reason": None}
        if self.logprobs is not None:
            choice["logprobs"] = self.logprobs
        if self.text is not None:
            choice["text"] = self.text.text
        return choice | self.other


def _says_it_again(key: str, value: object) -> bool:
    """Say whether this field of a choice, kept once, is no other when it is kept once more."""
    return not value or not (key in ("logprobs", "message", "text") or is_array(value))


def _joined(old: object, new: object) -> object:
    """Join the log-probabilities of two chunks: lists are extended, the rest is replaced."""
    if not is_object(old) or not is_object(new):
        return new
    joined = dict(old)
    for key, value in new.items():
        before = joined.get(key)
        if is_array(before) and is_array(value):
            before.extend(value)
        elif value is not None:
            joined[key] = value
    return joined


class ChatAssembler(Assembler):
    """Chunks in, one `chat.completion` out."""

    __slots__ = ("_choices", "_last", "_last_kind", "_top")

    def __init__(self) -> None:
        super().__init__()
        self._top: dict[str, object] = {}
        self._last: dict[str, object] = {}
        self._last_kind = ""
        self._choices: dict[int, _Choice] = {}

    def _take(self, event: dict[str, object], kind: str) -> None:
        choices = event.pop("choices", None)
        if is_array(choices):
            for entry in choices:
                if is_object(entry):
                    self._choice(entry.get("index")).take(entry)
        # Padding of random length, so that the size of a packet tells nothing of its text.
        event.pop("obfuscation", None)
        event.pop("p", None)
        if event == self._last and kind == self._last_kind:
            # Chunk after chunk says the same about the whole: nothing to merge.
            return
        self._last, self._last_kind = event, kind
        extension = event.get("x_groq")
        if self._ends(event, kind):
            self._fail(event.get("error") or event)
        elif is_object(extension) and extension.get("error"):
            # Official clients see no error in it and read on.
            self._error = extension["error"]
        elif not is_array(choices) and kind.startswith(_FOREIGN):
            self._mismatch = True
            return
        if is_array(choices) or self._error is None:
            self._merge(event)

    def growing(self, event: dict[str, object], kind: str) -> Growing | None:
        """Say what a chunk adds to that was just taken: what it says of the whole is known then."""
        choices = event.get("choices")
        if not is_array(choices) or len(choices) != 1 or self.state is not StreamState.OPEN:
            return None
        [entry] = choices
        found = self._choice(entry.get("index")).growing(entry) if is_object(entry) else None
        return None if found is None else found._replace(path=("choices", 0, *found.path))

    def _merge(self, event: dict[str, object]) -> None:
        """Take what a chunk says about the whole."""
        top = self._top
        for key, value in event.items():
            old = top.get(key)
            if key in _DROPPED or value is None or (key in _FIRST and old):
                continue
            if is_object(old) and is_object(value) and key != "usage":
                value = {**old, **value}  # noqa: PLW2901 - the field as it is from now on
            top[key] = value

    def _choice(self, index: object) -> _Choice:
        place = index if type(index) is int else 0
        choice = self._choices.get(place)
        if choice is None:
            choice = self._choices[place] = _Choice()
        return choice

    def _ends(self, event: dict[str, object], kind: str) -> bool:
        return bool(event.get("error")) or "error" in {kind, str(event.get("object"))}

    @property
    def content_complete(self) -> bool:
        """Whether every choice has its finish reason."""
        choices = self._choices.values()
        return bool(choices) and all("finish_reason" in choice.other for choice in choices)

    def _done(self) -> None:
        if self._error is None:
            self._end("[DONE]")
        else:
            super()._done()

    def _response(self) -> tuple[dict[str, object] | None, dict[str, object]]:
        if not self._top and not self._choices:
            return None, {}
        top = {"id": None, "object": "chat.completion", "created": None, "model": None} | self._top
        usage = top.pop("usage", None)
        top["choices"] = [self._choices[place].result(place) for place in sorted(self._choices)]
        top["usage"] = usage
        incomplete: dict[str, object] = {}
        for choice in self._choices.values():
            if choice.calls is not None:
                incomplete |= choice.calls.incomplete()
        return top, {"tool_arguments_incomplete": incomplete} if incomplete else {}


def _error_event(error: ErrorFacts) -> tuple[str | None, dict[str, object]]:
    return None, openai_error(error)


CHAT = Dialect(
    name="chat",
    route=b"/v1/chat/completions",
    assembler=ChatAssembler,
    error_body=openai_error,
    error_event=_error_event,
)
