"""A response object of any dialect in; its tool calls and its reasoning, in one shape, out. Pure.

Tool calls are those that the client is to carry out; what a provider ran by itself stays in the
response object.
"""

from collections.abc import Generator, Iterable

from nemo_gym.wire.json import as_array, as_object, dumps, is_object, loads_object, text_of

__all__ = ["as_arguments", "reasoning_of_message", "tool_calls_and_reasoning"]

# Responses items that ask the client to act, and the field that says what to do.
_ACTIONS = {
    "computer_call": "action",
    "local_shell_call": "action",
    "shell_call": "action",
    "apply_patch_call": "operation",
}


def as_arguments(arguments: object) -> dict[str, object]:
    """Return the arguments of a tool call as an object; what is none goes under `_raw` as text.

    None, as sent by servers for a tool without parameters, is an empty object.
    """
    if arguments is None:
        return {}
    if is_object(arguments):
        return arguments
    text = arguments if isinstance(arguments, str) else dumps(arguments).decode()
    found = loads_object(text)
    return {"_raw": text} if found is None else found


def tool_calls_and_reasoning(
    response: dict[str, object],
) -> tuple[list[dict[str, object]], str | None]:
    """Return `{"call_id", "name", "arguments"}` of each tool call, and the reasoning text.

    Reads all three shapes by what is there: `output` items, `choices` (all of them), or content
    blocks. Several pieces of reasoning are joined by a newline; None: there is none.
    """
    calls: list[dict[str, object]] = []
    reasoning: list[str] = []
    for item in _objects(response.get("output")):
        calls += _calls_of_item(item)
        reasoning += _reasoning_of_item(item)
    for choice in _objects(response.get("choices")):
        message = as_object(choice.get("message")) or {}
        calls += _calls_of_message(message)
        reasoning += reasoning_of_message(message)
    for block in _objects(response.get("content")):
        if block.get("type") == "tool_use":
            calls.append(_call(block.get("id"), block.get("name"), block.get("input")))
        elif block.get("type") == "thinking":
            reasoning += _texts([block], "thinking")
    return calls, "\n".join(reasoning) or None


def _calls_of_item(item: dict[str, object]) -> Generator[dict[str, object]]:
    kind = item.get("type")
    if kind == "function_call":
        yield _call(item.get("call_id"), item.get("name"), item.get("arguments"))
    elif kind == "custom_tool_call":
        yield _call(item.get("call_id"), item.get("name"), _free_text(item.get("input")))
    elif kind == "tool_search_call" and item.get("execution") == "client":
        yield _call(item.get("call_id"), kind, item.get("arguments"))
    elif isinstance(kind, str) and kind in _ACTIONS:
        yield _call(item.get("call_id"), kind, item.get(_ACTIONS[kind]))


def _reasoning_of_item(item: dict[str, object]) -> Generator[str]:
    if item.get("type") == "reasoning":
        yield from _texts(_objects(item.get("summary")), "text")
        yield from _texts(_objects(item.get("content")), "text")


def _calls_of_message(message: dict[str, object]) -> Generator[dict[str, object]]:
    for call in _objects(message.get("tool_calls")):
        function, custom = as_object(call.get("function")), as_object(call.get("custom"))
        if function is not None:
            yield _call(call.get("id"), function.get("name"), function.get("arguments"))
        elif custom is not None:
            yield _call(call.get("id"), custom.get("name"), _free_text(custom.get("input")))
    legacy = as_object(message.get("function_call"))
    if legacy is not None and legacy.get("name"):  # some servers always send an empty one
        yield _call(None, legacy.get("name"), legacy.get("arguments"))


def reasoning_of_message(message: dict[str, object]) -> list[str]:
    """Return the pieces of reasoning in a Chat message, wherever its server puts them."""
    # Servers spell it one way or another, and some two ways with the same text.
    for spelling in ("reasoning_content", "reasoning", "thinking"):
        text = text_of(message.get(spelling))
        if text:
            return [text]
    parts = [part for part in _objects(message.get("content")) if part.get("type") == "thinking"]
    thoughts = [text for part in parts for text in _texts(_objects(part.get("thinking")), "text")]
    details = _objects(message.get("reasoning_details"))
    blocks = _objects(message.get("thinking_blocks"))
    for entries, key in ((details, "text"), (details, "summary"), (blocks, "thinking")):
        thoughts = thoughts or [*_texts(entries, key)]
    return thoughts


def _call(call_id: object, name: object, arguments: object) -> dict[str, object]:
    return {
        "call_id": text_of(call_id),
        "name": text_of(name),
        "arguments": as_arguments(arguments),
    }


def _free_text(text: object) -> dict[str, object]:
    """Return the input of a custom tool: text by definition, whatever it looks like."""
    return {"_raw": text} if isinstance(text, str) else as_arguments(text)


def _objects(value: object) -> list[dict[str, object]]:
    return [entry for entry in as_array(value) or () if is_object(entry)]


def _texts(entries: Iterable[dict[str, object]], key: str) -> Generator[str]:
    for entry in entries:
        text = text_of(entry.get(key))
        if text:
            yield text
