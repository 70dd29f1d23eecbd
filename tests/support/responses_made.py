"""Whole responses of the three dialects, made up by hypothesis."""

import json
from typing import Any

from hypothesis import strategies as st

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
NAME = st.text("abc_", min_size=1, max_size=6)
SIZE = st.integers(1, 5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
ARGUMENTS = st.dictionaries(TEXT, JSON, max_size=3)
_COUNT = st.integers(0, 10**6)


@st.composite
def chat_completions(draw: st.DrawFn) -> dict[str, Any]:
    """A Chat completion with one to three choices."""
    choices = [_choice(draw, index) for index in range(draw(st.integers(1, 3)))]
    usage = draw(st.none() | st.fixed_dictionaries({"prompt_tokens": _COUNT}))
    top = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    return {**top, "choices": choices, "usage": usage}


def _choice(draw: st.DrawFn, index: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": draw(TEXT) or None, "refusal": None}
    for key in ("refusal", "reasoning_content"):
        text = draw(TEXT)
        if text:
            message[key] = text
    calls = [
        {
            "index": place,
            "id": f"call_{place}",
            "type": "function",
            "function": {"name": draw(NAME), "arguments": json.dumps(draw(ARGUMENTS))},
        }
        for place in range(draw(st.integers(0, 3)))
    ]
    if calls:
        message["tool_calls"] = calls
    reason = draw(st.sampled_from(["stop", "length", "tool_calls", "content_filter"]))
    choice: dict[str, Any] = {"index": index, "message": message, "finish_reason": reason}
    tokens = [{"token": t, "logprob": -0.5} for t in draw(st.lists(TEXT, max_size=2))]
    return {**choice, "logprobs": {"content": tokens}} if tokens else choice


@st.composite
def messages(draw: st.DrawFn) -> tuple[dict[str, Any], list[str]]:
    """A message, and the text of each tool's input."""
    content: list[dict[str, Any]] = []
    inputs: list[str] = []
    for place in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["text", "thinking", "tool_use"]))
        if kind == "text":
            cited = draw(st.lists(st.fixed_dictionaries({"cited_text": TEXT}), max_size=2))
            content.append(
                {"type": kind, "text": draw(TEXT)} | ({"citations": cited} if cited else {})
            )
        elif kind == "thinking":
            content.append({"type": kind, "thinking": draw(TEXT), "signature": draw(TEXT)})
        else:
            value = draw(ARGUMENTS)
            inputs.append(json.dumps(value, ensure_ascii=draw(st.booleans())))
            tool = {"type": kind, "id": f"t{place}", "name": draw(NAME)}
            content.append({**tool, "input": value})
    usage = {"input_tokens": draw(_COUNT), "output_tokens": draw(_COUNT)}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content}
    return {**message, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}, inputs


@st.composite
def responses(draw: st.DrawFn) -> dict[str, Any]:
    """A Responses object."""
    output = [_item(draw, place) for place in range(draw(st.integers(0, 4)))]
    top = {"id": "r", "object": "response", "status": "completed", "output": output}
    return {**top, "usage": draw(st.none() | st.fixed_dictionaries({"input_tokens": _COUNT}))}


def _item(draw: st.DrawFn, place: int) -> dict[str, Any]:
    kind = draw(st.sampled_from(["message", "reasoning", "function_call"]))
    item: dict[str, Any] = {"id": f"i{place}", "type": kind}
    texts = draw(st.lists(TEXT, max_size=2))
    if kind == "message":
        parts = [{"type": "output_text", "text": t, "annotations": []} for t in texts]
        return {**item, "role": "assistant", "content": parts}
    if kind == "reasoning":
        return {**item, "summary": [{"type": "summary_text", "text": t} for t in texts]}
    return {**item, "call_id": "c", "name": draw(NAME), "arguments": json.dumps(draw(ARGUMENTS))}
