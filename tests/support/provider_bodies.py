"""What a provider says: texts and tool calls in, bodies or SSE events of one dialect out.

Ids and the model name are left as the placeholders `ID` and `MODEL`, filled in per call.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["ID", "MODEL", "Answer", "ToolCall", "events_of", "json_of"]

ID = "@@@@@@@@@@@@@@@@@@@@ID"
MODEL = "@@@@MODEL"

Event = tuple[str | None, dict[str, object] | str]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One function call that the model makes."""

    name: str
    arguments: str = "{}"
    """JSON text, as it goes on the wire; may be broken on purpose."""
    call_id: str = "call_1"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model answers, whatever the dialect."""

    text: str = "The answer is \\boxed{A}."
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    tokens_in: int = 12
    tokens_out: int = 7
    cached: int = 0
    deltas: int = 4
    """Into how many text deltas a stream is cut."""


def json_of(dialect: str, answer: Answer) -> bytes:
    """Return the complete JSON response."""
    return _dump(_WHOLE[dialect](answer))


def events_of(dialect: str, answer: Answer) -> list[bytes]:
    """Return the SSE events of the same response, one item each."""
    return [_event(name, data) for name, data in _STREAM[dialect](answer)]


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _event(name: str | None, data: dict[str, object] | str) -> bytes:
    text = data.encode() if isinstance(data, str) else _dump(data)
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + text + b"\n\n"


def _cut(text: str, parts: int) -> list[str]:
    size = max(1, -(-len(text) // max(1, parts)))
    return [text[i : i + size] for i in range(0, len(text), size)]


# Chat Completions


def _chat_usage(a: Answer) -> dict[str, object]:
    return {
        "prompt_tokens": a.tokens_in,
        "completion_tokens": a.tokens_out,
        "total_tokens": a.tokens_in + a.tokens_out,
        "prompt_tokens_details": {"cached_tokens": a.cached},
    }


def _chat_calls(calls: Sequence[ToolCall]) -> list[dict[str, object]]:
    return [
        {
            "id": call.call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in calls
    ]


def _chat_head(kind: str) -> dict[str, object]:
    return {"id": f"chatcmpl-{ID}", "object": kind, "created": 1786032154, "model": MODEL}


def _chat_whole(a: Answer) -> dict[str, object]:
    message: dict[str, object] = {"role": "assistant", "content": a.text or None}
    if a.reasoning is not None:
        message["reasoning_content"] = a.reasoning
    if a.tool_calls:
        message["tool_calls"] = _chat_calls(a.tool_calls)
    finish = "tool_calls" if a.tool_calls else "stop"
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return {**_chat_head("chat.completion"), "choices": [choice], "usage": _chat_usage(a)}


def _chat_stream(a: Answer) -> Iterable[Event]:
    def chunk(delta: dict[str, object], finish: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return None, {**_chat_head("chat.completion.chunk"), "choices": [choice]}

    yield chunk({"role": "assistant", "content": ""})
    if a.reasoning is not None:
        yield chunk({"reasoning_content": a.reasoning})
    for part in _cut(a.text, a.deltas):
        yield chunk({"content": part})
    for index, call in enumerate(_chat_calls(a.tool_calls)):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, "tool_calls" if a.tool_calls else "stop")
    head = _chat_head("chat.completion.chunk")
    yield None, {**head, "choices": [], "usage": _chat_usage(a)}
    yield None, "[DONE]"


# Responses


def _response(a: Answer, status: str, output: list[dict[str, object]]) -> dict[str, object]:
    usage: dict[str, object] = {
        "input_tokens": a.tokens_in,
        "input_tokens_details": {"cached_tokens": a.cached},
        "output_tokens": a.tokens_out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": a.tokens_in + a.tokens_out,
    }
    return {
        "id": f"resp_{ID}",
        "object": "response",
        "created_at": 1786032154,
        "status": status,
        "model": MODEL,
        "output": output,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage if status == "completed" else None,
    }


def _output(a: Answer) -> list[dict[str, object]]:
    items: list[dict[str, object]] = []
    if a.reasoning is not None:
        summary = [{"type": "summary_text", "text": a.reasoning}]
        items.append({"id": f"rs_{ID}", "type": "reasoning", "summary": summary})
    if a.text or not a.tool_calls:
        content = [{"type": "output_text", "text": a.text, "annotations": []}]
        items.append(
            {
                "id": f"msg_{ID}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        )
    items.extend(
        {
            "id": f"fc_{ID}{index}",
            "type": "function_call",
            "status": "completed",
            "name": call.name,
            "arguments": call.arguments,
            "call_id": call.call_id,
        }
        for index, call in enumerate(a.tool_calls)
    )
    return items


def _responses_whole(a: Answer) -> dict[str, object]:
    return _response(a, "completed", _output(a))


def _responses_stream(a: Answer) -> Iterable[Event]:
    events: list[dict[str, object]] = [
        {"type": "response.created", "response": _response(a, "in_progress", [])},
        {"type": "response.in_progress", "response": _response(a, "in_progress", [])},
    ]
    for index, item in enumerate(_output(a)):
        events += _item_events(a, index, item)
    events.append({"type": "response.completed", "response": _responses_whole(a)})
    for number, event in enumerate(events):
        yield str(event["type"]), {**event, "sequence_number": number}


def _item_events(a: Answer, index: int, item: dict[str, object]) -> list[dict[str, object]]:
    at: dict[str, object] = {"output_index": index, "item_id": item["id"]}
    body: list[dict[str, object]] = []
    bare = {**item, "status": "in_progress"}
    if item["type"] == "message":
        bare["content"] = []
        at["content_index"] = 0
        empty = {"type": "output_text", "text": "", "annotations": []}
        whole = {"type": "output_text", "text": a.text, "annotations": []}
        body = [
            {"type": "response.content_part.added", **at, "part": empty},
            *(
                {"type": "response.output_text.delta", **at, "delta": part, "logprobs": []}
                for part in _cut(a.text, a.deltas)
            ),
            {"type": "response.output_text.done", **at, "text": a.text, "logprobs": []},
            {"type": "response.content_part.done", **at, "part": whole},
        ]
    elif item["type"] == "function_call":
        arguments, bare["arguments"] = item["arguments"], ""
        name = {"name": item["name"], "arguments": arguments}
        body = [
            {"type": "response.function_call_arguments.delta", **at, "delta": arguments},
            {"type": "response.function_call_arguments.done", **at, **name},
        ]
    return [
        {"type": "response.output_item.added", "output_index": index, "item": bare},
        *body,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


# Messages


def _message(a: Answer, content: list[dict[str, object]], stop: str | None) -> dict[str, object]:
    return {
        "id": f"msg_{ID}",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": a.tokens_in,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": a.cached,
            "output_tokens": a.tokens_out if stop else 1,
        },
    }


def _blocks(a: Answer) -> list[dict[str, object]]:
    blocks: list[dict[str, object]] = []
    if a.reasoning is not None:
        blocks.append({"type": "thinking", "thinking": a.reasoning, "signature": "c2ln"})
    if a.text or not a.tool_calls:
        blocks.append({"type": "text", "text": a.text})
    for call in a.tool_calls:
        try:
            arguments = json.loads(call.arguments)
        except ValueError:
            arguments = {}
        blocks.append(
            {"type": "tool_use", "id": call.call_id, "name": call.name, "input": arguments}
        )
    return blocks


def _messages_whole(a: Answer) -> dict[str, object]:
    return _message(a, _blocks(a), "tool_use" if a.tool_calls else "end_turn")


def _messages_stream(a: Answer) -> Iterable[Event]:
    events: list[dict[str, object]] = [
        {"type": "message_start", "message": _message(a, [], None)},
        {"type": "ping"},
    ]
    calls = iter(a.tool_calls)
    for index, block in enumerate(_blocks(a)):
        events += _block_events(a, index, block, calls)
    stop = {"stop_reason": "tool_use" if a.tool_calls else "end_turn", "stop_sequence": None}
    events.append(
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": a.tokens_out}}
    )
    events.append({"type": "message_stop"})
    return [(str(event["type"]), event) for event in events]


def _block_events(
    a: Answer, index: int, block: dict[str, object], calls: Iterable[ToolCall]
) -> list[dict[str, object]]:
    deltas: list[dict[str, object]]
    if block["type"] == "text":
        start = {**block, "text": ""}
        deltas = [{"type": "text_delta", "text": part} for part in _cut(a.text, a.deltas)]
    elif block["type"] == "thinking":
        start = {**block, "thinking": "", "signature": ""}
        deltas = [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    else:
        start = {**block, "input": {}}
        call = next(iter(calls))
        deltas = [{"type": "input_json_delta", "partial_json": call.arguments}]
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


_WHOLE = {"chat": _chat_whole, "responses": _responses_whole, "messages": _messages_whole}
_STREAM = {"chat": _chat_stream, "responses": _responses_stream, "messages": _messages_stream}
