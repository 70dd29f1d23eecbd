"""A request or response of any dialect in; its conversation as plain lines of dialogue out. Pure.

For eyes: nothing is summed or judged here, what is of no known shape is shown as JSON, and of long
strings in there (images, encrypted content) only the beginning.
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass

from nemo_gym.wire.content import reasoning_of_message
from nemo_gym.wire.json import as_array, as_object, dumps, is_array, is_object, text_of

__all__ = ["Utterance", "request_utterances", "response_utterances"]

_LONG = 200
_BEGINNING = 60


@dataclass(frozen=True, slots=True)
class Utterance:
    """One thing that one side said."""

    role: str
    """`system`, `user`, `assistant`, `tool`, … as the dialect names it."""
    kind: str
    """`text`, `reasoning`, `tool_call`, `tool_result`, `refusal` or `other`."""
    text: str


def request_utterances(request: dict[str, object]) -> list[Utterance]:
    """Return the conversation that a request carries, instructions first."""
    said: list[Utterance] = []
    for key in ("instructions", "system"):
        said += _content("system", request.get(key))
    given = request.get("messages", request.get("input"))
    if isinstance(given, str):
        return [*said, Utterance("user", "text", given)]
    for item in _objects(given):
        said += _item(item, "user")
    return said


def response_utterances(response: dict[str, object]) -> list[Utterance]:
    """Return what a response says, every choice of it."""
    said: list[Utterance] = []
    for item in _objects(response.get("output")):
        said += _item(item, "assistant")
    for choice in _objects(response.get("choices")):
        said += _item(as_object(choice.get("message")) or {}, "assistant")
    if "content" in response:
        said += _content("assistant", response["content"])
    error = as_object(response.get("error"))
    if error is not None:
        said.append(Utterance("error", "other", text_of(error.get("message")) or _json(error)))
    return said


def _item(item: dict[str, object], default_role: str) -> Generator[Utterance]:
    """Yield what one message or item says."""
    kind = text_of(item.get("type")) or "message"
    role = text_of(item.get("role")) or default_role
    if kind in {"function_call", "custom_tool_call", "mcp_call"}:
        yield _call(item.get("name"), item.get("arguments", item.get("input")))
        if item.get("output") is not None:
            yield Utterance("tool", "tool_result", _plain(item["output"]))
    elif kind.endswith("_call_output"):
        yield Utterance("tool", "tool_result", _plain(item.get("output")))
    elif kind == "reasoning":
        yield from _reasoning(item)
    elif kind != "message":
        yield Utterance(role, "other", _json(item))
    elif role == "tool":
        yield Utterance("tool", "tool_result", _plain(item.get("content")))
    else:
        yield from _message(item, role)


def _message(message: dict[str, object], role: str) -> Generator[Utterance]:
    said = [*_content(role, message.get("content"))]
    if not any(each.kind == "reasoning" for each in said):  # else its parts hold it
        for text in reasoning_of_message(message):
            yield Utterance(role, "reasoning", text)
    yield from said
    refusal = text_of(message.get("refusal"))
    if refusal:
        yield Utterance(role, "refusal", refusal)
    for call in _objects(message.get("tool_calls")):
        body = as_object(call.get("function")) or as_object(call.get("custom")) or {}
        yield _call(body.get("name"), body.get("arguments", body.get("input")))
    legacy = as_object(message.get("function_call"))
    if legacy is not None and legacy.get("name"):
        yield _call(legacy.get("name"), legacy.get("arguments"))


def _content(role: str, content: object) -> Generator[Utterance]:
    if isinstance(content, str):
        if content:
            yield Utterance(role, "text", content)
        return
    for block in _objects(content):
        yield _block(role, block)


def _block(role: str, block: dict[str, object]) -> Utterance:
    kind = text_of(block.get("type")) or ""
    match kind:
        case "text" | "input_text" | "output_text":
            return Utterance(role, "text", text_of(block.get("text")) or "")
        case "refusal":
            return Utterance(role, "refusal", text_of(block.get("refusal")) or "")
        case "thinking":
            return Utterance(role, "reasoning", _plain(block.get("thinking")))
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            return _call(block.get("name"), block.get("input"))
        case _ if kind.endswith("tool_result"):
            return Utterance("tool", "tool_result", _plain(block.get("content")))
        case _:
            return Utterance(role, "other", _json(block))


def _reasoning(item: dict[str, object]) -> Generator[Utterance]:
    for key in ("summary", "content"):
        for part in _objects(item.get(key)):
            text = text_of(part.get("text"))
            if text:
                yield Utterance("assistant", "reasoning", text)


def _call(name: object, arguments: object) -> Utterance:
    given = arguments if isinstance(arguments, str) else _json(arguments, whole=True)
    return Utterance("assistant", "tool_call", f"{text_of(name) or '?'}({given})")


def _plain(content: object) -> str:
    """Return content as text: that of its blocks, and as JSON those that are none."""
    if isinstance(content, str):
        return content
    blocks = [text_of(block.get("text")) or _json(block) for block in _objects(content)]
    return "\n".join(blocks) or _json(content)


def _objects(value: object) -> Iterable[dict[str, object]]:
    return [entry for entry in as_array(value) or () if is_object(entry)]


def _json(value: object, *, whole: bool = False) -> str:
    try:
        return dumps(value if whole else _shortened(value)).decode()
    except RecursionError:
        return "(nested too deeply to be shown)"


def _shortened(value: object) -> object:
    """Return the value with the beginning of each long string in it, and how long it is."""
    if isinstance(value, str) and len(value) > _LONG:
        return f"{value[:_BEGINNING]}… ({len(value):,} characters)"
    if is_object(value):
        return {key: _shortened(inner) for key, inner in value.items()}
    return [_shortened(inner) for inner in value] if is_array(value) else value
