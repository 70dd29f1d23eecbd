"""Messages: `POST /v1/messages`.

A stream opens with `message_start`, fills content blocks by index, closes with `message_delta`
(stop reason, usage) and `message_stop`.
"""

from pydantic_core import from_json

from nemo_gym.wire.dialects.base import Assembler, Dialect, ErrorFacts, Growing, is_error
from nemo_gym.wire.dialects.merge import TextPieces
from nemo_gym.wire.json import (
    JsonError,
    dumps,
    is_array,
    is_count,
    is_object,
    loads,
    whole_characters,
)

__all__ = ["MESSAGES", "MessagesAssembler"]

# Type of the block that a delta fills, for a stream that never started it.
_FILLED = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
}
_PROMPT_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_PROMPT_FIELDS = frozenset({*_PROMPT_COUNTS, "cache_creation"})


class _Block:
    """One content block under way."""

    __slots__ = ("fields", "input", "stopped", "texts")

    def __init__(self, fields: dict[str, object]) -> None:
        self.fields = fields
        self.texts: dict[str, TextPieces] = {}
        self.input: TextPieces | None = None
        self.stopped = False

    def take(self, delta: dict[str, object]) -> None:
        """Take one delta: texts grow, citations are appended, everything else is replaced."""
        kind = delta.get("type")
        for key, value in delta.items():
            if key == "type" or value is None:
                continue
            if key == "partial_json":
                self.input = self.input or TextPieces()
                self.input.add(value if isinstance(value, str) else dumps(value).decode())
            elif kind == "citations_delta" and key == "citation":
                citations = self.fields.get("citations")
                self.fields["citations"] = [*citations, value] if is_array(citations) else [value]
            elif isinstance(value, str) and _grows(key, kind):
                text = self.texts.get(key)
                if text is None:
                    text = self.texts[key] = TextPieces()
                text.add(value)
            else:
                self.fields[key] = value

    def growing(self, delta: dict[str, object]) -> Growing | None:
        """Say what a delta that was just taken adds to; see `Assembler.growing`."""
        kind = delta.get("type")
        told = [key for key, value in delta.items() if key != "type" and value is not None]
        if len(told) != 1 or not isinstance(delta[told[0]], str):
            return None
        [key] = told
        text = self.input if key == "partial_json" else None
        if text is None and _grows(key, kind):
            text = self.texts.get(key)
        return None if text is None else Growing(("delta", key), text)

    def incomplete_input(self) -> str | None:
        """Return the text of a tool's input where it is not JSON."""
        text = self.input.text if self.input is not None else ""
        if not text:
            return None
        try:
            loads(text)
        except JsonError:
            return text
        return None

    def result(self) -> dict[str, object]:
        """Return the block as it would have been sent without streaming."""
        fields = dict(self.fields)
        for key, text in self.texts.items():
            start = fields.get(key)
            fields[key] = (start if isinstance(start, str) else "") + text.text
        if self.input is not None and self.input.text:
            fields["input"] = _tool_input(self.input.text)
        return fields


def _grows(key: str, kind: object) -> bool:
    """Say whether a delta of this kind adds to the text `key`; one without a kind adds to any."""
    return (kind is None or kind == f"{key}_delta") and key != "signature"


def _tool_input(text: str) -> object:
    """Return the value of a tool's input: what has come of it where it is cut, else its text."""
    try:
        return loads(text)
    except JsonError:
        pass
    try:
        value: object = from_json(whole_characters(text), allow_partial=True)
    except ValueError:
        return text
    return value


def _merge_usage(start: dict[str, object], delta: dict[str, object]) -> dict[str, object]:
    """Return usage after a `message_delta`: its counts are totals, so they replace.

    Zeros for the prompt are taken only together with a new count for it: some servers fill the
    fields that they do not count again with zeros.
    """
    counts = {key: delta.get(key) for key in _PROMPT_COUNTS}
    recounted = any(is_count(n) and n > 0 and n != start.get(key) for key, n in counts.items())
    usage = dict(start)
    for key, value in delta.items():
        empty = value == 0 or (is_object(value) and not any(value.values()))
        says_nothing = value is None or (key in _PROMPT_FIELDS and empty and not recounted)
        if not says_nothing or (value is not None and usage.get(key) is None):
            usage[key] = value
    return usage


def _place(index: object) -> int:
    return index if type(index) is int else 0


class MessagesAssembler(Assembler):
    """Events in, one `message` out."""

    STOPPING_NAMES = frozenset({b"message_stop"})
    ENDING_MARKS = (b'"message_stop"', b'"error"')

    __slots__ = ("_at", "_blocks", "_message", "_restarts")

    def __init__(self) -> None:
        super().__init__()
        self._message: dict[str, object] | None = None
        self._blocks: list[_Block] = []
        self._at: dict[int, _Block] = {}
        self._restarts = 0

    def _take(self, event: dict[str, object], kind: str) -> None:
        if "choices" in event and "type" not in event:
            # A chunk of Chat, whatever name it was sent under.
            self._mismatch = True
        elif kind == "content_block_delta":
            delta = event.get("delta")
            if is_object(delta):
                self._block(event.get("index"), delta.get("type")).take(delta)
        elif kind == "content_block_start":
            self._start_block(event.get("index"), event.get("content_block"))
        elif kind == "content_block_stop":
            self._block(event.get("index")).stopped = True
        elif kind == "message_start":
            self._start(event.get("message"))
        elif kind == "message_delta":
            self._change(event)
        elif self._ends(event, kind):
            self._stop(event, kind)
        elif kind.startswith("response."):
            self._mismatch = True
        else:
            self._aside = event.get("error") or None

    def growing(self, event: dict[str, object], kind: str) -> Growing | None:
        """Say what a delta adds to that was just taken."""
        delta = event.get("delta")
        if kind != "content_block_delta" or "choices" in event or not is_object(delta):
            return None
        return self._block(event.get("index"), delta.get("type")).growing(delta)

    def _ends(self, event: dict[str, object], kind: str) -> bool:
        return kind == "message_stop" or is_error(event, kind)

    def _stop(self, event: dict[str, object], kind: str) -> None:
        if kind == "message_stop":
            self._end(kind)
        else:
            self._fail(event.get("error") or event)

    def _start(self, message: object) -> None:
        if self._message is not None:
            # A gateway began again in mid-stream: what follows is the answer, from its start.
            self._restarts += 1
            self._blocks, self._at = [], {}
        self._message = message if is_object(message) else {}
        content = self._message.get("content")
        for index, fields in enumerate(content if is_array(content) else ()):
            self._start_block(index, fields)
            self._block(index).stopped = True

    def _start_block(self, index: object, fields: object) -> None:
        block = _Block(dict(fields) if is_object(fields) else {})
        self._blocks.append(block)
        self._at[_place(index)] = block
        served_by = block.fields.get("to") if block.fields.get("type") == "fallback" else None
        if is_object(served_by) and "model" in served_by:
            self._message = {**(self._message or {}), "model": served_by["model"]}

    def _block(self, index: object, delta: object = None) -> _Block:
        """Return the block at `index`, made where it is missing; `delta`: type of what fills it."""
        place = _place(index)
        if place not in self._at:
            kind = _FILLED.get(delta) if isinstance(delta, str) else None
            self._start_block(place, None if kind is None else {"type": kind})
        return self._at[place]

    def _change(self, event: dict[str, object]) -> None:
        message = dict(self._message or {})
        for key, value in event.items():
            if key == "usage" and is_object(value):
                start = message.get("usage")
                message["usage"] = _merge_usage(start if is_object(start) else {}, value)
            elif key == "delta" and is_object(value):
                message |= {k: v for k, v in value.items() if v is not None or k not in message}
            elif key not in {"type", "delta", "usage"} and value is not None:
                message[key] = value
        self._message = message

    @property
    def content_complete(self) -> bool:
        """Whether the reason to stop has come."""
        return bool((self._message or {}).get("stop_reason"))

    def _response(self) -> tuple[dict[str, object] | None, dict[str, object]]:
        if self._message is None and not self._blocks:
            return None, {}
        message: dict[str, object] = {"type": "message", "role": "assistant"}
        message |= self._message or {}
        message["content"] = [block.result() for block in self._blocks]
        return message, self._notes()

    def _notes(self) -> dict[str, object]:
        notes: dict[str, object] = {}
        texts = [(block.fields.get("id"), block.incomplete_input()) for block in self._blocks]
        incomplete = {
            call_id if isinstance(call_id, str) else f"#{place}": text
            for place, (call_id, text) in enumerate(texts)
            if text is not None
        }
        if incomplete:
            notes["tool_arguments_incomplete"] = incomplete
        open_blocks = sum(not block.stopped for block in self._blocks)
        if open_blocks:
            notes["unterminated_items"] = open_blocks
        if self._restarts:
            notes["message_restarts"] = self._restarts
        return notes


# The documented pairs of HTTP status and error type.
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def _error_body(error: ErrorFacts) -> dict[str, object]:
    fallback = "api_error" if error.status >= 500 else "invalid_request_error"
    kind = _TYPES.get(error.status, fallback)
    return {"type": "error", "error": {"type": kind, "message": error.message}}


def _error_event(error: ErrorFacts) -> tuple[str | None, dict[str, object]]:
    return "error", _error_body(error)


MESSAGES = Dialect(
    name="messages",
    route=b"/v1/messages",
    assembler=MessagesAssembler,
    error_body=_error_body,
    error_event=_error_event,
)
