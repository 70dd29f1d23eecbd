"""Responses streams become the response that the server would have sent whole."""

from typing import Any

import pytest

from nemo_gym.wire.dialects import RESPONSES
from nemo_gym.wire.dialects.base import Assembled
from support.reassembly import assemble, bytewise
from support.sse import chunk, event, typed

_CREATED: dict[str, Any] = {
    "id": "r1",
    "object": "response",
    "status": "in_progress",
    "output": [],
    "usage": None,
}
_PART = {"type": "output_text", "text": "", "annotations": []}


def _assemble(*events: bytes) -> Assembled:
    assembled = assemble(RESPONSES, [b"".join(events)])
    assert assemble(RESPONSES, bytewise(b"".join(events))) == assembled
    return assembled


def _created() -> bytes:
    return typed("response.created", response=_CREATED)


def _added(index: int, kind: str, **fields: Any) -> bytes:
    item = {"id": f"i{index}", "type": kind, **fields}
    return typed("response.output_item.added", output_index=index, item=item)


def _done(index: int, kind: str, **fields: Any) -> bytes:
    item = {"id": f"i{index}", "type": kind, **fields}
    return typed("response.output_item.done", output_index=index, item=item)


def _in(index: int, kind: str, **fields: Any) -> bytes:
    return typed(f"response.{kind}", output_index=index, item_id=f"i{index}", **fields)


def _output(*events: bytes) -> Any:
    return (_assemble(_created(), *events).response or {})["output"]


@pytest.mark.parametrize("end", ["completed", "incomplete", "failed", "cancelled"])
def test_the_last_event_has_the_whole_response(end: str) -> None:
    whole = {"id": "r1", "status": end, "output": [{"type": "message"}], "usage": {"a": 1}}

    assembled = _assemble(_created(), typed(f"response.{end}", response=whole))

    assert (assembled.response, assembled.terminal) == (whole, f"response.{end}")


@pytest.mark.parametrize("final", [{"id": "r1", "output": []}, {"id": "r1"}])
def test_items_that_the_last_event_leaves_out_are_those_that_were_done(
    final: dict[str, Any],
) -> None:
    assembled = _assemble(
        _created(),
        _added(0, "reasoning"),
        _added(1, "message", content=[]),
        _done(1, "message", content=[{"type": "output_text", "text": "a"}]),
        _done(0, "reasoning", summary=[]),
        typed("response.completed", response=final),
    )

    response: Any = assembled.response
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
    assert response["output"][1]["content"][0]["text"] == "a"
    assert "usage" not in response


def test_calls_that_were_never_done_come_from_their_deltas_where_the_last_event_has_none() -> None:
    assembled = _assemble(
        _created(),
        _added(0, "function_call", name="f", arguments=""),
        _added(1, "function_call", name="g", arguments=""),
        _added(2, "web_search_call"),
        _in(1, "function_call_arguments.delta", delta='{"b":2}'),
        _in(0, "function_call_arguments.done", arguments='{"a":1}'),
        typed("response.completed", response={"id": "r1", "output": []}),
    )

    response: Any = assembled.response
    calls = [(item["name"], item["arguments"]) for item in response["output"]]
    assert calls == [("f", '{"a":1}'), ("g", '{"b":2}')]
    assert assembled.notes == {"unterminated_items": 3}


def test_an_item_that_was_never_done_is_noted() -> None:
    whole = {"id": "r1", "output": [{"type": "message"}]}

    assembled = _assemble(
        _created(), _added(0, "mcp_list_tools"), typed("response.completed", response=whole)
    )

    assert (assembled.response, assembled.notes) == (whole, {"unterminated_items": 1})


def test_a_last_event_without_its_response_leaves_what_was_known() -> None:
    assembled = _assemble(_created(), event({"type": "response.completed"}))

    assert assembled.response == _CREATED
    assert assembled.terminal == "response.completed"


def test_a_cut_stream_keeps_done_items_and_what_grew_of_others() -> None:
    assembled = _assemble(
        _created(),
        _done(0, "reasoning", summary=[]),
        _added(1, "message", role="assistant", content=[]),
        _in(1, "content_part.added", content_index=0, part=_PART),
        _in(1, "output_text.delta", content_index=0, delta="par", logprobs=[{"token": "par"}]),
        _in(1, "output_text.delta", content_index=0, delta="tial", logprobs=[]),
        _in(1, "output_text.annotation.added", content_index=0, annotation={"url": "a"}),
        _in(1, "output_text.annotation.added", content_index=0, annotation={"url": "b"}),
    )

    response: Any = assembled.response
    assert (assembled.terminal, response["usage"], response["id"]) == (None, None, "r1")
    assert response["output"] == [
        {"id": "i0", "type": "reasoning", "summary": []},
        {
            "id": "i1",
            "type": "message",
            "role": "assistant",
            "content": [
                {
                    "type": "output_text",
                    "text": "partial",
                    "annotations": [{"url": "a"}, {"url": "b"}],
                    "logprobs": [{"token": "par"}],
                }
            ],
        },
    ]
    assert assembled.notes == {"unterminated_items": 1}


def test_interleaved_calls_are_told_apart_whether_their_arguments_are_done_or_not() -> None:
    output = _output(
        _added(0, "function_call", name="f", arguments=""),
        _added(1, "function_call", name="g", arguments=""),
        _in(0, "function_call_arguments.delta", delta='{"a"'),
        typed("response.something.new", anything=1),
        _in(1, "function_call_arguments.delta", delta='{"b"'),
        _in(0, "function_call_arguments.delta", delta=":1}"),
        _in(1, "function_call_arguments.delta", delta=":2}"),
        _in(0, "function_call_arguments.done", arguments='{"a":1}'),
    )

    assert [(i["name"], i["arguments"]) for i in output] == [("f", '{"a":1}'), ("g", '{"b":2}')]


@pytest.mark.parametrize(
    ("kind", "root", "event_fields", "expected"),
    [
        (
            "message",
            "refusal",
            {"content_index": 0},
            {"content": [{"type": "refusal", "refusal": "ab"}]},
        ),
        (
            "reasoning",
            "reasoning_text",
            {"content_index": 0},
            {"content": [{"type": "reasoning_text", "text": "ab"}]},
        ),
        (
            "reasoning",
            "reasoning_summary_text",
            {"summary_index": 0},
            {"summary": [{"type": "summary_text", "text": "ab"}]},
        ),
        ("mcp_call", "mcp_call_arguments", {}, {"arguments": "ab"}),
        ("custom_tool_call", "custom_tool_call_input", {}, {"input": "ab"}),
        ("code_interpreter_call", "code_interpreter_call_code", {}, {"code": "ab"}),
        ("apply_patch_call", "apply_patch_call_operation_diff", {}, {"operation": {"diff": "ab"}}),
        (
            "shell_call",
            "shell_call_command",
            {"command_index": 0},
            {"action": {"commands": ["ab"]}},
        ),
    ],
)
def test_texts_grow_where_they_belong_even_in_an_item_that_nobody_announced(
    kind: str, root: str, event_fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    deltas = [_in(0, f"{root}.delta", delta=d, **event_fields) for d in "ab"]

    assert _output(*deltas) == [{"id": "i0", "type": kind, **expected}]
    assert _output(_added(0, kind), *deltas) == [{"id": "i0", "type": kind, **expected}]


def test_commands_of_one_call_are_told_apart_by_index() -> None:
    output = _output(
        _added(0, "shell_call", action={"commands": ["x"]}),
        _in(0, "shell_call_command.delta", command_index=2, delta="ls"),
        _in(0, "shell_call_command.delta", command_index=0, delta="cd"),
    )

    assert output[0]["action"]["commands"] == ["cd", "", "ls"]


def test_what_commands_print_grows_until_it_comes_whole() -> None:
    printed = {"stdout": "ab", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    grown = [
        _in(0, "shell_call_output_content.delta", command_index=0, delta={"stdout": "a"}),
        _in(0, "shell_call_output_content.delta", command_index=0, delta={"stdout": "b"}),
        _in(0, "shell_call_output_content.delta", command_index=1, delta={"stderr": "no"}),
    ]
    whole = _in(0, "shell_call_output_content.done", command_index=0, output=[printed])

    assert _output(*grown) == [
        {"id": "i0", "type": "shell_call_output", "output": [{"stdout": "ab"}, {"stderr": "no"}]}
    ]
    assert _output(*grown, whole)[0]["output"] == [printed, {"stderr": "no"}]


def test_what_commands_print_is_text_and_nothing_else() -> None:
    pieces = [
        _in(0, "shell_call_output_content.delta", command_index=0, delta=delta)
        for delta in ({"stdout": "a", "stderr": None}, {"stdout": 5}, "b", {"stdout": "c"})
    ]

    assert _output(*pieces)[0]["output"] == [{"stdout": "ac"}]


def test_events_that_tell_nothing_of_an_item_make_none() -> None:
    assert _output(_in(0, "web_search_call.searching"), _in(1, "some.future.thing")) == []


def test_the_text_of_a_done_event_replaces_what_grew() -> None:
    output = _output(
        _added(0, "message", content=[]),
        _in(0, "output_text.delta", content_index=0, delta="ab"),
        _in(0, "output_text.done", content_index=0, text="abc"),
        _in(0, "content_part.done", content_index=0, part={"type": "output_text", "x": 1}),
    )

    assert output[0]["content"] == [{"type": "output_text", "x": 1, "text": "abc"}]


def test_a_gap_in_the_numbers_of_parts_leaves_no_empty_part() -> None:
    delta = _in(0, "output_text.delta", content_index=1, delta="a")

    assert _output(_added(0, "message", content=[]), delta)[0]["content"] == [
        {"type": "output_text", "text": "a"}
    ]


def test_a_part_that_is_no_object_gives_way() -> None:
    delta = _in(0, "output_text.delta", content_index=0, delta="a")

    assert _output(_added(0, "message", content=["x"]), delta)[0]["content"] == [
        {"type": "output_text", "text": "a"}
    ]


@pytest.mark.parametrize("index", [-1, "x", None, True, 10**9])
def test_a_nonsensical_place_is_the_first(index: Any) -> None:
    delta = _in(0, "output_text.delta", content_index=index, delta="a")

    assert _output(delta)[0]["content"] == [{"type": "output_text", "text": "a"}]


def test_servers_that_leave_the_index_out_are_joined_by_id_else_by_order() -> None:
    by_id = [
        event({"type": "response.output_item.added", "item": {"id": "a", "type": "message"}}),
        event({"type": "response.output_item.added", "item": {"id": "b", "type": "message"}}),
        event({"type": "response.output_text.delta", "item_id": "a", "delta": "x"}),
        event({"type": "response.output_text.delta", "item_id": "b", "delta": "y"}),
        event({"type": "response.output_item.done", "item": {"id": "b", "type": "done"}}),
    ]

    output = _output(*by_id)

    assert [item["type"] for item in output] == ["message", "done"]
    assert output[0]["content"][0]["text"] == "x"


def test_items_without_index_and_id_follow_one_another() -> None:
    def item(step: str, **fields: Any) -> bytes:
        return event({"type": f"response.output_item.{step}", "item": {"type": "m", **fields}})

    output = _output(item("added"), item("done", n=1), item("added"), item("done", n=2))

    assert output == [{"type": "m", "n": 1}, {"type": "m", "n": 2}]


def test_ids_that_change_from_event_to_event_do_not_matter_where_there_is_an_index() -> None:
    delta = typed("response.output_text.delta", output_index=0, item_id="z", delta="a")

    assert len(_output(_added(0, "message"), delta)) == 1


def test_an_error_event_does_not_hide_the_failure_that_follows() -> None:
    error = {"type": "server_error", "message": "boom"}
    failed = {"id": "r1", "status": "failed", "error": {"code": "server_error"}}

    assembled = _assemble(
        _created(), typed("error", error=error), typed("response.failed", response=failed)
    )

    assert (assembled.response, assembled.error) == (failed, error)


@pytest.mark.parametrize(
    "error",
    [
        typed("error", code="x", message="boom"),
        event({"error": {"message": "boom"}}),
        event("boom", "error"),
    ],
)
def test_an_error_that_ends_a_stream_is_kept_with_what_came(error: bytes) -> None:
    assembled = _assemble(_created(), _done(0, "message"), error)

    response: Any = assembled.response
    assert "boom" in str(response["error"])
    assert len(response["output"]) == 1
    assert assembled.terminal is None


def test_chunks_of_another_dialect_are_flagged_and_left_out() -> None:
    assembled = _assemble(_created(), chunk({"content": "leak"}), _done(0, "message"))

    assert assembled.notes == {"dialect_mismatch": True}
    assert len((assembled.response or {})["output"]) == 1  # type: ignore[arg-type]


def test_a_chunk_of_chat_is_known_whatever_name_it_was_sent_under() -> None:
    leak = event({"id": "c", "choices": [{"index": 0, "delta": {"content": "leak"}}]}, "x")
    named = leak.replace(b"event: x", b"event: response.output_item.done")
    assembled = _assemble(_created(), named)

    assert (assembled.response or {})["output"] == []
    assert assembled.notes == {"dialect_mismatch": True}


def test_a_sentinel_ends_reading() -> None:
    assembled = _assemble(
        _created(), event("[DONE]"), typed("response.completed", response={"id": "late"})
    )

    assert assembled.terminal is None


@pytest.mark.parametrize(
    "strange",
    [
        typed("response.output_item.added", output_index=0, item=None),
        typed("response.output_item.done", output_index=0, item=None),
        typed("response.content_part.added", output_index=0, content_index=0, part=None),
        _in(0, "output_text.delta", content_index=0, delta=None),
        _in(0, "something.unknown", delta="x"),
        typed("response.something"),
        typed("nothing.known"),
    ],
)
def test_events_of_a_strange_shape_do_not_stop_the_rest(strange: bytes) -> None:
    output = _output(strange, _done(1, "message"))

    assert output[-1] == {"id": "i1", "type": "message"}


def test_nothing_is_no_response() -> None:
    assert _assemble(typed("keepalive")).response is None
