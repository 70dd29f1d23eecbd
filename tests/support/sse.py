"""Event streams, written as a server writes them."""

import json
from typing import Any

DONE = b"data: [DONE]\n\n"


def event(data: Any, name: str | None = None) -> bytes:
    """One event with JSON data (text and bytes are taken as they are)."""
    head = b"" if name is None else f"event: {name}\n".encode()
    if isinstance(data, str):
        data = data.encode()
    body = data if isinstance(data, bytes) else json.dumps(data, ensure_ascii=False).encode()
    return head + b"data: " + body + b"\n\n"


def chunk(delta: Any = None, *, index: int = 0, finish: str | None = None, **top: Any) -> bytes:
    """One chunk of a Chat stream with one choice."""
    choice: dict[str, Any] = {"index": index, "delta": delta or {}, "finish_reason": finish}
    return event(
        {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        | {"choices": [choice]}
        | top
    )


def typed(kind: str, **fields: Any) -> bytes:
    """One named event whose data repeats its type, as Responses and Messages have it."""
    return event({"type": kind, **fields}, kind)


def message_start(**usage: Any) -> bytes:
    """The opening event of a Messages stream."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    return typed("message_start", message={**message, "stop_reason": None, "usage": usage})


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any], stop: bool = True) -> bytes:
    """All events of one content block."""
    body = typed("content_block_start", index=index, content_block=start)
    for delta in deltas:
        body += typed("content_block_delta", index=index, delta=delta)
    return body + (typed("content_block_stop", index=index) if stop else b"")


def message_end(stop_reason: str = "end_turn", **usage: Any) -> bytes:
    """The closing events of a Messages stream."""
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    return typed("message_delta", delta=delta, usage=usage) + typed("message_stop")


def cut(body: bytes, sizes: list[int]) -> list[bytes]:
    """Cut a body in pieces of these sizes, again and again."""
    pieces: list[bytes] = []
    while body:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(body[:size])
        body = body[size:]
    return pieces
