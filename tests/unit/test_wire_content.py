"""Tool calls and reasoning are read from all three shapes into one."""

from typing import Any

import pytest

from nemo_gym.wire.content import as_arguments, tool_calls_and_reasoning


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("{}", {}),
        (None, {}),
        ("", {"_raw": ""}),
        ('{"a": ', {"_raw": '{"a": '}),
        ("[1]", {"_raw": "[1]"}),
        ("null", {"_raw": "null"}),
        ([1], {"_raw": "[1]"}),
        (7, {"_raw": "7"}),
    ],
)
def test_arguments_are_an_object_or_kept_as_text(arguments: object, value: dict[str, Any]) -> None:
    assert as_arguments(arguments) == value


def test_items_of_a_responses_object_are_read() -> None:
    output = [
        {"type": "reasoning", "summary": [{"text": "s1"}, {"text": "s2"}], "content": None},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "r"}]},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"x":1}'},
        {"type": "custom_tool_call", "call_id": "b", "name": "py", "input": '{"not":"json"}'},
        {"type": "custom_tool_call", "call_id": "b2", "name": "py", "input": None},
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
        {"type": "apply_patch_call", "call_id": "d", "operation": {"diff": "+"}},
        {"type": "web_search_call", "id": "e"},
        {"type": "message", "content": [{"type": "output_text", "text": "t"}]},
        {"type": ["strange"]},
        "strange",
    ]

    calls, reasoning = tool_calls_and_reasoning({"output": output})

    assert calls == [
        {"call_id": "a", "name": "f", "arguments": {"x": 1}},
        {"call_id": "b", "name": "py", "arguments": {"_raw": '{"not":"json"}'}},
        {"call_id": "b2", "name": "py", "arguments": {}},
        {"call_id": "c", "name": "shell_call", "arguments": {"commands": ["ls"]}},
        {"call_id": "d", "name": "apply_patch_call", "arguments": {"diff": "+"}},
    ]
    assert reasoning == "s1\ns2\nr"


def test_messages_of_a_chat_completion_are_read_in_all_choices() -> None:
    first = {
        "reasoning_content": "because",
        "reasoning": "because",
        "tool_calls": [
            {"id": "a", "function": {"name": "f", "arguments": "{}"}},
            {"id": "b", "custom": {"name": "py", "input": "1+1"}},
            {"id": "c"},
        ],
    }
    second = {"reasoning": "so", "function_call": {"name": "g", "arguments": "x"}}

    calls, reasoning = tool_calls_and_reasoning(
        {
            "choices": [
                {"message": m} for m in (first, second, {"function_call": {"name": ""}}, None)
            ]
        }
    )

    assert calls == [
        {"call_id": "a", "name": "f", "arguments": {}},
        {"call_id": "b", "name": "py", "arguments": {"_raw": "1+1"}},
        {"call_id": None, "name": "g", "arguments": {"_raw": "x"}},
    ]
    assert reasoning == "because\nso"


@pytest.mark.parametrize(
    "message",
    [
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]},
        {"thinking": "hm"},
        {"thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "S"}]},
    ],
    ids=["parts", "details", "summaries", "thinking", "blocks"],
)
def test_reasoning_in_other_places_is_found(message: dict[str, Any]) -> None:
    assert tool_calls_and_reasoning({"choices": [{"message": message}]}) == ([], "hm")


def test_blocks_of_a_message_are_read() -> None:
    content = [
        {"type": "thinking", "thinking": "a", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "t"},
        {"type": "thinking", "thinking": "b"},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}},
        {"type": "tool_use", "id": "t2", "name": "g", "input": "cut"},
        {"type": "server_tool_use", "id": "t3", "name": "web_search", "input": {}},
    ]

    calls, reasoning = tool_calls_and_reasoning({"content": content})

    assert calls == [
        {"call_id": "t1", "name": "f", "arguments": {"x": 1}},
        {"call_id": "t2", "name": "g", "arguments": {"_raw": "cut"}},
    ]
    assert reasoning == "a\nb"


@pytest.mark.parametrize("response", [{}, {"output": None, "choices": 1, "content": "text"}])
def test_no_calls_are_an_empty_list_and_no_reasoning_is_unknown(response: dict[str, Any]) -> None:
    assert tool_calls_and_reasoning(response) == ([], None)
