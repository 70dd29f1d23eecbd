"""A whole response, streamed as its dialect has it: what a server does, written independently."""

from collections.abc import Sequence
from typing import Any

from support.sse import DONE, event, typed


def cut(text: str, size: int) -> list[str]:
    """The text in pieces of `size` characters."""
    return [text[i : i + size] for i in range(0, len(text), size)]


def chat_stream(completion: dict[str, Any], size: int) -> bytes:
    """The chunks of a Chat completion; choices take turns."""
    top = {k: completion[k] for k in ("id", "created", "model")}
    top["object"] = "chat.completion.chunk"
    queues = [_chat_deltas(choice, size) for choice in completion["choices"]]
    body = b""
    for turn in range(max(map(len, queues), default=0)):
        for queue in queues:
            if turn < len(queue):
                body += event({**top, "choices": [queue[turn]]})
    if completion["usage"] is not None:
        body += event({**top, "choices": [], "usage": completion["usage"]})
    return body + DONE


def _chat_deltas(choice: dict[str, Any], size: int) -> list[dict[str, Any]]:
    message, index = choice["message"], choice["index"]
    deltas: list[dict[str, Any]] = [{"role": message["role"]}]
    for key in ("reasoning_content", "refusal", "content"):
        deltas += [{key: piece} for piece in cut(message.get(key) or "", size)]
    for call in message.get("tool_calls", ()):
        head = {k: call[k] for k in ("index", "id", "type")}
        function = call["function"]
        deltas.append({"tool_calls": [{**head, "function": {**function, "arguments": ""}}]})
        deltas += [
            {"tool_calls": [{"index": call["index"], "function": {"arguments": piece}}]}
            for piece in cut(function["arguments"], size)
        ]
    found: list[dict[str, Any]] = [
        {"index": index, "delta": delta, "finish_reason": None} for delta in deltas
    ]
    tokens = (choice.get("logprobs") or {}).get("content", ())
    found += [{"index": index, "delta": {}, "logprobs": {"content": [t]}} for t in tokens]
    return [*found, {"index": index, "delta": {}, "finish_reason": choice["finish_reason"]}]


_MESSAGE_DELTAS = {"text": ("text", "text_delta"), "thinking": ("thinking", "thinking_delta")}


def messages_stream(message: dict[str, Any], tool_json: Sequence[str], size: int) -> bytes:
    """The events of a message; `tool_json` has each tool's input as the model wrote it."""
    usage = message["usage"]
    start = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    start["usage"] = {**usage, "output_tokens": 1}
    body = typed("message_start", message=start) + typed("ping")
    inputs = iter(tool_json)
    for index, block in enumerate(message["content"]):
        body += _block_events(index, block, inputs, size)
    end = {k: message[k] for k in ("stop_reason", "stop_sequence")}
    body += typed("message_delta", delta=end, usage={"output_tokens": usage["output_tokens"]})
    return body + typed("message_stop")


def _block_events(index: int, block: dict[str, Any], inputs: Any, size: int) -> bytes:
    start, deltas = dict(block), []
    if block["type"] == "tool_use":
        start["input"] = {}
        pieces = ["", *cut(next(inputs), size)]
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    else:
        field, kind = _MESSAGE_DELTAS[block["type"]]
        start[field] = ""
        deltas = [{"type": kind, field: piece} for piece in cut(block[field], size)]
    if "signature" in block:
        start["signature"] = ""
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    if "citations" in block:
        start["citations"] = []
        deltas += [{"type": "citations_delta", "citation": c} for c in block["citations"]]
    body = typed("content_block_start", index=index, content_block=start)
    for delta in deltas:
        body += typed("content_block_delta", index=index, delta=delta)
    return body + typed("content_block_stop", index=index)


def responses_stream(response: dict[str, Any], size: int, *, ends: bool) -> bytes:
    """The events of a response; without `ends`, nothing is ever done and the stream breaks off."""
    started = {**response, "output": [], "status": "in_progress", "usage": None}
    body = typed("response.created", response=started)
    for index, item in enumerate(response["output"]):
        body += _item_events(index, item, size)
        if ends:
            body += typed("response.output_item.done", output_index=index, item=item)
    return body + (typed("response.completed", response=response) if ends else b"")


def _item_events(index: int, item: dict[str, Any], size: int) -> bytes:
    at = {"output_index": index, "item_id": item["id"]}
    if item["type"] == "function_call":
        start = {**item, "arguments": ""}
        deltas = [
            typed("response.function_call_arguments.delta", **at, delta=piece)
            for piece in cut(item["arguments"], size)
        ]
    elif item["type"] == "reasoning":
        start = {**item, "summary": []}
        deltas = [
            typed("response.reasoning_summary_text.delta", **at, summary_index=i, delta=piece)
            for i, part in enumerate(item["summary"])
            for piece in ["", *cut(part["text"], size)]
        ]
    else:
        start = {**item, "content": []}
        deltas = []
        for i, part in enumerate(item["content"]):
            place = {**at, "content_index": i}
            empty = {**part, "text": ""}
            deltas.append(typed("response.content_part.added", **place, part=empty))
            for piece in cut(part["text"], size):
                deltas.append(typed("response.output_text.delta", **place, delta=piece))
    return typed("response.output_item.added", output_index=index, item=start) + b"".join(deltas)
