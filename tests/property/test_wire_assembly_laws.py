"""Laws of reassembly: what was streamed comes back, however it is cut; nothing stops it."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.wire.dialects import CHAT, DIALECTS, MESSAGES, RESPONSES
from nemo_gym.wire.dialects.base import StreamState
from nemo_gym.wire.json import dumps
from nemo_gym.wire.stream import StreamReader
from support.reassembly import assemble, bytewise
from support.responses_made import JSON, SIZE, chat_completions, messages, responses
from support.sse import event
from support.streamed import chat_stream, messages_stream, responses_stream

_LINE_END = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(chat_completions(), SIZE, _LINE_END)
def test_a_streamed_completion_comes_back(
    completion: dict[str, Any], size: int, line_end: bytes
) -> None:
    body = chat_stream(completion, size).replace(b"\n", line_end)

    assembled = assemble(CHAT, bytewise(body))

    assert assembled.response == completion
    assert (assembled.terminal, assembled.notes) == ("[DONE]", {})


@given(messages(), SIZE, _LINE_END)
def test_a_streamed_message_comes_back(
    made: tuple[dict[str, Any], list[str]], size: int, line_end: bytes
) -> None:
    message, inputs = made
    body = messages_stream(message, inputs, size).replace(b"\n", line_end)

    assembled = assemble(MESSAGES, bytewise(body))

    assert assembled.response == message
    assert (assembled.terminal, assembled.notes) == ("message_stop", {})


@given(responses(), SIZE, _LINE_END)
def test_a_streamed_response_comes_back(
    response: dict[str, Any], size: int, line_end: bytes
) -> None:
    body = responses_stream(response, size, ends=True).replace(b"\n", line_end)

    assembled = assemble(RESPONSES, bytewise(body))

    assert assembled.response == response
    assert (assembled.terminal, assembled.notes) == ("response.completed", {})


@given(responses(), SIZE)
def test_the_items_of_a_response_that_broke_off_come_back_from_their_deltas(
    response: dict[str, Any], size: int
) -> None:
    assembled = assemble(RESPONSES, [responses_stream(response, size, ends=False)])

    assert (assembled.response or {})["output"] == response["output"]
    assert assembled.notes.get("unterminated_items", 0) == len(response["output"])


@given(chat_completions(), SIZE, st.data())
def test_a_stream_has_ended_exactly_when_its_last_line_has(
    completion: dict[str, Any], size: int, data: st.DataObject
) -> None:
    body = chat_stream(completion, size)
    cut = data.draw(st.integers(0, len(body) - 2))
    reader = StreamReader(CHAT)

    assert reader.feed(body[:cut], 0.0) is StreamState.OPEN
    assert reader.feed(body[cut:-1], 0.0) is StreamState.ENDED


_WORDS = st.sampled_from(
    [
        "content", "role", "tool_calls", "function", "arguments", "name", "id", "index", "delta",
        "choices", "usage", "error", "finish_reason", "logprobs", "text", "message", "item",
        "output_index", "item_id", "content_index", "summary_index", "part", "response", "output",
        "content_block", "partial_json", "input", "citation", "thinking", "to", "annotation",
    ]
)  # fmt: skip
_KINDS = st.sampled_from(
    [
        "message_start", "content_block_start", "content_block_delta", "content_block_stop",
        "message_delta", "response.created", "response.output_item.added",
        "response.output_item.done", "response.output_text.delta", "response.output_text.done",
        "response.content_part.added", "response.output_text.annotation.added",
        "response.shell_call_command.delta", "response.function_call_arguments.delta",
        "response.apply_patch_call_operation_diff.delta", "text_delta", "input_json_delta",
        "citations_delta", "thinking_delta", "function", "error", "fallback",
    ]
)  # fmt: skip
_SHAPES = st.recursive(
    JSON | st.integers(-1, 2) | _KINDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=4),
    max_leaves=12,
)
_EVENTS = st.builds(
    lambda kind, fields: {**fields, **({} if kind is None else {"type": kind})},
    st.none() | _KINDS,
    st.dictionaries(_WORDS, _SHAPES, max_size=6),
)


@given(st.sampled_from(DIALECTS), st.lists(_EVENTS, max_size=6))
def test_no_event_of_any_shape_stops_an_assembler(dialect: Any, events: list[Any]) -> None:
    body = b"".join(event(e) for e in events)

    assembled = assemble(dialect, [body])

    assert json.loads(dumps(assembled.response)) == json.loads(json.dumps(assembled.response))
    assert assemble(dialect, bytewise(body)) == assembled
