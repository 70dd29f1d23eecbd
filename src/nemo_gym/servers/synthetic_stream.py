"""A complete response in, the server-sent events of a stream of it out. Pure.

For model servers that only make whole responses: their clients may ask for a stream all the same.
The order of events is that of the public APIs, with one delta for each text.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from nemo_gym.wire.json import dumps

__all__ = ["chat_events", "responses_events"]

Json = dict[str, Any]


def responses_events(response: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the events of a Responses stream, ending with the terminal one."""
    for number, event in enumerate(_responses(response)):
        yield _named({**event, "sequence_number": number})


def chat_events(completion: Mapping[str, Any], *, include_usage: bool) -> Iterator[bytes]:
    """Yield the chunks of a Chat Completions stream, ending with `[DONE]`."""
    head = {key: completion[key] for key in _CHUNK_HEAD if key in completion}
    head["object"] = "chat.completion.chunk"
    for position, choice in enumerate(completion.get("choices") or []):
        base = {"index": choice.get("index", position)}
        for delta in _deltas(choice.get("message") or {}):
            yield _data({**head, "choices": [{**base, "delta": delta, "finish_reason": None}]})
        last = {**base, "delta": {}, "finish_reason": choice.get("finish_reason")}
        if choice.get("logprobs") is not None:
            last["logprobs"] = choice["logprobs"]
        yield _data({**head, "choices": [last]})
    if include_usage:
        yield _data({**head, "choices": [], "usage": completion.get("usage")})
    yield b"data: [DONE]\n\n"


_CHUNK_HEAD = ("id", "created", "model", "service_tier", "system_fingerprint")
_EMPTY: dict[str, Json] = {"message": {"content": []}, "function_call": {"arguments": ""}}
_TERMINAL = {"failed": "response.failed", "incomplete": "response.incomplete"}


def _responses(response: Mapping[str, Any]) -> Iterator[Json]:
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(response.get("output") or []):
        yield from _item(index, item)
    status = response.get("status") or "completed"
    kind = _TERMINAL.get(status, "response.completed")
    yield {"type": kind, "response": {**response, "status": status}}


def _item(index: int, item: Json) -> Iterator[Json]:
    at = {"output_index": index}
    ref = {"item_id": item.get("id") or item.get("call_id") or f"item_{index}", **at}
    yield {"type": "response.output_item.added", **at, "item": _begun(item)}
    if item.get("type") == "message":
        for number, part in enumerate(item.get("content") or []):
            yield from _part({**ref, "content_index": number}, part)
    elif item.get("type") == "function_call":
        text = item.get("arguments") or ""
        yield {"type": "response.function_call_arguments.delta", **ref, "delta": text}
        yield {"type": "response.function_call_arguments.done", **ref, "arguments": text}
    elif item.get("type") == "reasoning":
        for number, part in enumerate(item.get("summary") or []):
            yield from _summary({**ref, "summary_index": number}, part)
    yield {"type": "response.output_item.done", **at, "item": item}


def _begun(item: Json) -> Json:
    empty = _EMPTY.get(str(item.get("type")))
    return item if empty is None else {**item, "status": "in_progress", **empty}


def _part(at: Json, part: Json) -> Iterator[Json]:
    name, field = {"refusal": ("refusal", "refusal")}.get(
        str(part.get("type")), ("output_text", "text")
    )
    text = part.get(field)
    empty = {**part, field: ""} if text is not None else part
    yield {"type": "response.content_part.added", **at, "part": empty}
    if text is not None:
        yield {"type": f"response.{name}.delta", **at, "delta": text}
        yield {"type": f"response.{name}.done", **at, field: text}
    yield {"type": "response.content_part.done", **at, "part": part}


def _summary(at: Json, part: Json) -> Iterator[Json]:
    text = part.get("text") or ""
    yield {"type": "response.reasoning_summary_part.added", **at, "part": {**part, "text": ""}}
    yield {"type": "response.reasoning_summary_text.delta", **at, "delta": text}
    yield {"type": "response.reasoning_summary_text.done", **at, "text": text}
    yield {"type": "response.reasoning_summary_part.done", **at, "part": part}


def _deltas(message: Json) -> Iterator[Json]:
    # A text begins empty; no text at all is null, as with calls alone.
    begun = "" if isinstance(message.get("content"), str) else None
    yield {"role": message.get("role") or "assistant", "content": begun}
    for name, value in message.items():
        if name == "tool_calls":
            for index, call in enumerate(value or []):
                yield {"tool_calls": [{"index": index, **call}]}
        elif name != "role" and value not in (None, ""):
            yield {name: value}


def _named(event: Json) -> bytes:
    return b"event: " + str(event["type"]).encode() + b"\n" + _data(event)


def _data(value: Json) -> bytes:
    return b"data: " + dumps(value) + b"\n\n"
