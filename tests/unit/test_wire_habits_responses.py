"""Habits of servers that speak Responses or Messages: each amounts to the whole."""

from typing import Any

import pytest

from nemo_gym.records.model_call import build
from nemo_gym.wire.dialects import MESSAGES, RESPONSES, Dialect
from nemo_gym.wire.dialects.base import Assembled
from support.reassembly import assemble, bytewise
from support.sse import block, event, message_end, message_start, typed


def _assemble(dialect: Dialect, *events: bytes) -> Assembled:
    assembled = assemble(dialect, [b"".join(events)])
    assert assemble(dialect, bytewise(b"".join(events))) == assembled
    return assembled


def _output(*events: bytes) -> Any:
    response: Any = _assemble(RESPONSES, *events).response
    return response["output"]


def _content(*events: bytes) -> Any:
    response: Any = _assemble(MESSAGES, message_start(), *events).response
    return response["content"]


_CREATED = typed("response.created", response={"id": "r1", "status": "in_progress", "output": []})
_END = typed("response.completed", response={"id": "r1", "status": "completed", "output": []})


def _added(index: int, item: dict[str, Any]) -> bytes:
    return typed("response.output_item.added", output_index=index, item=item)


def _done(index: int, item: dict[str, Any]) -> bytes:
    return typed("response.output_item.done", output_index=index, item=item)


def _call(number: int, arguments: str) -> dict[str, Any]:
    name = f"f{number}"
    call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
    return call | {"name": name, "arguments": arguments}


def _arguments(number: int, delta: str) -> bytes:
    kind = "response.function_call_arguments.delta"
    return typed(kind, output_index=0, item_id=f"fc_{number}", delta=delta)


def test_items_stand_by_their_index_in_whatever_order_they_come() -> None:
    events = [_done(index, _call(index, "{}")) for index in (2, 0, 1)]

    assert [item["name"] for item in _output(_CREATED, *events)] == ["f0", "f1", "f2"]


def test_a_delta_that_has_an_error_beside_it_is_taken_once() -> None:
    delta = {"type": "text_delta", "text": "a"}
    events = block(0, {"type": "text", "text": ""}, stop=False)
    events += typed("content_block_delta", index=0, delta=delta, error={"message": "none"})

    assert _content(events, message_end()) == [{"type": "text", "text": "a"}]


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "done-only"])
def test_items_that_all_have_one_index_are_all_kept(announced: bool) -> None:
    events = [_CREATED]
    for number in (1, 2, 3):
        if announced:
            events += [_added(0, _call(number, "")), _arguments(number, "{}")]
        events.append(_done(0, _call(number, "{}")))

    assert _output(*events, _END) == [_call(number, "{}") for number in (1, 2, 3)]


def test_items_of_one_index_that_grow_in_turns_are_told_apart_by_their_ids() -> None:
    opened = [_added(0, _call(1, "")), _added(0, _call(2, ""))]
    grown = [_arguments(1, '{"a"'), _arguments(2, '{"b"'), _arguments(1, ":1}")]
    whole = [_call(1, '{"a":1}'), _call(2, '{"b":2}')]

    assert _output(_CREATED, *opened, *grown, _arguments(2, ":2}")) == whole
    assert _output(_CREATED, *opened, *grown, _done(0, whole[0]), _done(0, whole[1])) == whole


def test_an_item_that_is_announced_or_done_twice_is_one_item() -> None:
    once = [_added(0, _call(1, "")), _done(0, _call(1, "{}"))]

    assert _output(_CREATED, *once, *once, _END) == [_call(1, "{}")]


def test_what_comes_for_an_item_that_is_done_changes_nothing() -> None:
    assert _output(_CREATED, _done(0, _call(1, "{}")), _arguments(1, "{}"), _END) == [
        _call(1, "{}")
    ]


@pytest.mark.parametrize(
    ("kind", "item", "grown"),
    [
        (
            "response.reasoning",
            {"type": "reasoning", "summary": []},
            {"content": [{"type": "reasoning_text", "text": "ab"}]},
        ),
        (
            "response.reasoning_summary",
            {"type": "reasoning"},
            {"summary": [{"type": "summary_text", "text": "ab"}]},
        ),
        ("response.mcp_call.arguments", {"type": "mcp_call"}, {"arguments": "ab"}),
        ("response.code_interpreter_call.code", {"type": "code_interpreter_call"}, {"code": "ab"}),
    ],
)
def test_spellings_of_earlier_versions_are_read(
    kind: str, item: dict[str, Any], grown: dict[str, Any]
) -> None:
    deltas = [typed(f"{kind}.delta", output_index=0, item_id="i", delta=d) for d in ("a", "b")]

    assert _output(_CREATED, _added(0, item | {"id": "i"}), *deltas) == [item | {"id": "i"} | grown]


def test_annotations_of_an_item_that_was_never_done_are_kept() -> None:
    message = {"type": "message", "id": "m", "role": "assistant", "content": []}
    at = {"output_index": 0, "item_id": "m", "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    kinds = ("url_citation", "file_citation", "container_file_citation", "file_path")

    [item] = _output(
        _CREATED,
        _added(0, message),
        typed("response.content_part.added", **at, part=part),
        typed("response.output_text.delta", **at, delta="a", logprobs=[{"token": "a"}]),
        *(
            typed("response.output_text.annotation.added", **at, annotation={"type": kind})
            for kind in kinds
        ),
    )

    assert item["content"] == [
        {"type": "output_text", "text": "a", "annotations": [{"type": kind} for kind in kinds]}
        | {"logprobs": [{"token": "a"}]}
    ]


def test_a_search_for_tools_that_the_client_is_to_do_is_a_tool_call() -> None:
    search = {"type": "tool_search_call", "call_id": "c", "arguments": {"query": "x"}}
    output = [search | {"execution": "client"}, search | {"execution": "server"}]

    record = build({"dialect": "responses", "response": {"output": output}}, 0)

    assert record.tool_calls == [
        {"call_id": "c", "name": "tool_search_call", "arguments": {"query": "x"}}
    ]


_TOOL = {"type": "tool_use", "id": "t", "name": "f", "input": {}}


def _input(fragment: object) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": fragment}


@pytest.mark.parametrize(
    "fragments", [[None, '{"a":', "true}", None], [{"a": True}]], ids=["nulls", "an-object"]
)
def test_input_that_comes_as_null_or_as_an_object_is_read(fragments: list[object]) -> None:
    assert _content(block(0, _TOOL, *map(_input, fragments)), message_end("tool_use")) == [
        _TOOL | {"input": {"a": True}}
    ]


def test_null_in_a_delta_takes_nothing_away() -> None:
    deltas = [{"type": "text_delta", "text": text} for text in ("l", None, "o")]

    assert _content(block(0, {"type": "text", "text": "Hel"}, *deltas), message_end()) == [
        {"type": "text", "text": "Hello"}
    ]


def test_deltas_without_a_type_are_told_by_their_fields() -> None:
    assert _content(
        block(0, {"type": "thinking", "thinking": ""}, {"thinking": "a"}, {"thinking": "b"}),
        block(1, {"type": "text", "text": ""}, {"text": "c"}, {"text": "d"}),
        message_end(),
    ) == [{"type": "thinking", "thinking": "ab"}, {"type": "text", "text": "cd"}]


@pytest.mark.parametrize(
    "kind",
    [
        "char_location",
        "page_location",
        "content_block_location",
        "search_result_location",
        "web_search_result_location",
    ],
)
def test_citations_of_every_kind_are_listed(kind: str) -> None:
    citations = [{"type": kind, "cited_text": text} for text in "ab"]
    deltas = [{"type": "citations_delta", "citation": c} for c in citations]

    [text] = _content(block(0, {"type": "text", "text": "", "citations": []}, *deltas))

    assert text["citations"] == citations


def test_what_closes_a_message_is_all_kept() -> None:
    closing = {
        "stop_reason": "compaction",
        "stop_sequence": None,
        "stop_details": {"type": "refusal", "category": "x", "explanation": None},
        "container": {"id": "c", "expires_at": "2026-01-01T00:00:00Z"},
    }
    usage = {"output_tokens": 3, "server_tool_use": {"web_search_requests": 1}, "iterations": [{}]}
    beside = {"context_management": {"applied_edits": []}, "input_transformations": []}

    response: Any = _assemble(
        MESSAGES,
        message_start(input_tokens=2, output_tokens=1),
        block(
            0,
            {"type": "compaction", "content": None},
            {"type": "compaction_delta", "content": "sum", "encrypted_content": "E"},
        ),
        block(1, {"type": "redacted_thinking", "data": "ENC"}),
        block(2, {"type": "container_upload", "file_id": "f"}),
        typed("message_delta", delta=closing, usage=usage, **beside),
        event({"type": "message_stop"}),
    ).response

    assert {key: response[key] for key in (*closing, *beside)} == closing | beside
    assert response["usage"] == {"input_tokens": 2} | usage
    assert response["content"] == [
        {"type": "compaction", "content": "sum", "encrypted_content": "E"},
        {"type": "redacted_thinking", "data": "ENC"},
        {"type": "container_upload", "file_id": "f"},
    ]


_CALL = {"type": "function_call", "id": "f", "call_id": "c", "name": "pay", "arguments": ""}
_END = typed("response.completed", response={"id": "r", "status": "completed", "output": []})


def _announced(item: dict[str, Any]) -> bytes:
    return typed("response.output_item.added", output_index=0, item=item)


@pytest.mark.parametrize(
    "item",
    [
        {**_CALL, "arguments": '{"q":1}'},
        {**_CALL, "status": "completed"},
        {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "whole"}]},
        {"type": "reasoning", "id": "s", "summary": [{"type": "summary_text", "text": "so"}]},
        {"type": "image_generation_call", "id": "i", "result": "AAAA"},
    ],
)
def test_an_item_that_comes_whole_with_its_announcement_is_kept(item: dict[str, Any]) -> None:
    response: Any = _assemble(RESPONSES, _announced(item), _END).response

    assert response["output"] == [item]


@pytest.mark.parametrize(
    "item",
    [
        _CALL,
        {"type": "message", "id": "m", "content": []},
        {"type": "message", "id": "m", "content": [{"type": "output_text", "text": ""}]},
        {"type": "web_search_call", "id": "w", "status": "in_progress", "action": {"type": "x"}},
    ],
)
def test_an_item_of_which_nothing_came_is_none_of_a_response_that_has_ended(
    item: dict[str, Any],
) -> None:
    response: Any = _assemble(RESPONSES, _announced(item), _END).response

    assert response["output"] == []


def test_log_probabilities_that_only_the_end_of_a_text_has_are_kept_when_the_stream_is_cut() -> (
    None
):
    at = {"output_index": 0, "content_index": 0, "item_id": "m"}
    first, both = [{"token": "a"}], [{"token": "a"}, {"token": "b"}]
    begun = typed("response.output_text.delta", **at, delta="a", logprobs=first)
    ended = typed("response.output_text.done", **at, text="ab", logprobs=both)
    silent = typed("response.output_text.done", **at, text="ab")

    def logprobs(*events: bytes) -> object:
        response: Any = _assemble(RESPONSES, *events).response
        return response["output"][0]["content"][0]["logprobs"]

    assert logprobs(ended) == logprobs(begun, ended) == both
    assert logprobs(begun, silent) == first
