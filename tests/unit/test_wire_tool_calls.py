"""Fragments of tool calls in a Chat stream become whole calls, whatever a server's habits."""

from typing import Any

import pytest

from nemo_gym.wire.dialects import CHAT
from nemo_gym.wire.dialects.base import Assembled
from support.reassembly import assemble, bytewise
from support.sse import DONE, chunk


def _assemble(*events: bytes) -> Assembled:
    assembled = assemble(CHAT, [b"".join(events)])
    assert assemble(CHAT, bytewise(b"".join(events))) == assembled
    return assembled


def _message(*events: bytes) -> Any:
    response: Any = _assemble(*events).response
    return response["choices"][0]["message"]


def _calls(*fragments: list[dict[str, Any]]) -> Any:
    return _message(*(chunk({"tool_calls": f}) for f in fragments), DONE)["tool_calls"]


def test_parallel_calls_without_an_index_are_told_apart_by_their_ids() -> None:
    calls = _calls(
        [{"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x"'}}],
        [{"function": {"arguments": ":1}"}}],
        [{"id": "b", "type": "function", "function": {"name": "g", "arguments": ""}}],
        [{"function": {"arguments": "{}"}}],
        [{"id": "b", "function": {"arguments": " "}}],
    )

    assert [(c["id"], c["function"]) for c in calls] == [
        ("a", {"name": "f", "arguments": '{"x":1}'}),
        ("b", {"name": "g", "arguments": "{} "}),
    ]


def test_whole_calls_without_index_and_id_are_told_apart_by_their_names() -> None:
    calls = _calls(
        [{"function": {"name": "f", "arguments": '{"x":1}'}}],
        [{"function": {"name": "f", "arguments": '{"x":2}'}}],
    )

    assert [c["function"]["arguments"] for c in calls] == ['{"x":1}', '{"x":2}']


def test_a_name_that_comes_with_every_fragment_is_one_name() -> None:
    [call] = _calls(
        [{"function": {"name": "f", "arguments": '{"x"'}}],
        [{"function": {"name": "f", "arguments": ":1}"}}],
    )

    assert call["function"] == {"name": "f", "arguments": '{"x":1}'}


def test_two_entries_of_one_index_in_the_first_chunk_are_one_call() -> None:
    [call] = _calls(
        [
            {"index": 0, "id": "a", "type": "function", "function": {"name": "f"}},
            {"index": 0, "function": {"arguments": '{"x"'}},
        ],
        [{"index": 0, "function": {"arguments": ":1}"}}],
    )

    assert call == {
        "index": 0,
        "id": "a",
        "type": "function",
        "function": {"name": "f", "arguments": '{"x":1}'},
    }


def test_calls_that_share_index_zero_are_told_apart_by_id_and_name() -> None:
    calls = _calls(
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}],
        [{"index": 0, "id": "b", "function": {"name": "g", "arguments": "{}"}}],
    )

    assert [(c["id"], c["function"]["name"]) for c in calls] == [("a", "f"), ("b", "g")]


def test_calls_that_share_an_id_are_told_apart_by_index() -> None:
    calls = _calls(
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}}],
        [{"index": 1, "id": "a", "function": {"name": "g", "arguments": '{"y"'}}],
        [{"index": 0, "id": "a", "function": {"arguments": ":1}"}}],
        [{"index": 1, "id": "a", "function": {"arguments": ":2}"}}],
    )

    assert [call["function"] for call in calls] == [
        {"name": "f", "arguments": '{"x":1}'},
        {"name": "g", "arguments": '{"y":2}'},
    ]


def test_whole_calls_that_share_index_zero_and_an_empty_id_are_told_apart() -> None:
    calls = _calls(
        [{"index": 0, "id": "", "function": {"name": "f", "arguments": '{"x":1}'}}],
        [{"index": 0, "id": "", "function": {"name": "g", "arguments": "{}"}}],
    )

    assert [c["function"] for c in calls] == [
        {"name": "f", "arguments": '{"x":1}'},
        {"name": "g", "arguments": "{}"},
    ]


def test_a_name_cut_in_two_is_one_name_even_within_one_delta() -> None:
    head = {"index": 1, "id": "a", "function": {"name": "get_"}}
    tail = {"index": 1, "function": {"name": "weather", "arguments": "{}"}}

    for calls in (_calls([head, tail]), _calls([head], [tail])):
        assert [c["function"] for c in calls] == [{"name": "get_weather", "arguments": "{}"}]


def test_a_name_that_comes_again_after_all_arguments_is_no_call_of_its_own() -> None:
    [call] = _calls(
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}],
        [{"index": 0, "function": {"name": "f", "arguments": ""}}],
    )

    assert call["function"] == {"name": "f", "arguments": "{}"}


def test_calls_come_in_the_order_of_their_indexes() -> None:
    calls = _calls(
        [{"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}],
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}],
    )

    assert [c["id"] for c in calls] == ["a", "b"]


def test_a_call_that_stops_at_length_is_one_call_with_its_text_kept() -> None:
    fragments: list[dict[str, Any]] = [
        {"index": 1, "id": "a", "type": "function", "function": {"name": "get_"}},
        {"index": 1, "function": {"name": "weather"}},
        {"index": 1, "function": {"arguments": '{"city": "Par'}},
    ]

    assembled = _assemble(
        *(chunk({"tool_calls": [f]}) for f in fragments), chunk(finish="length"), DONE
    )

    response: Any = assembled.response
    [choice] = response["choices"]
    [call] = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Par'}
    assert choice["finish_reason"] == "length"
    assert assembled.notes == {"tool_arguments_incomplete": {"a": '{"city": "Par'}}


def test_an_incomplete_call_without_an_id_is_noted_by_its_place() -> None:
    assembled = _assemble(chunk({"tool_calls": [{"function": {"arguments": "{"}}]}), DONE)

    assert assembled.notes == {"tool_arguments_incomplete": {"#0": "{"}}


def test_custom_tools_and_unknown_fields_of_a_call_are_kept() -> None:
    google = {"thought_signature": "s"}
    custom = {"name": "py", "input": "print(", "grammar": 1}
    [call] = _calls(
        [{"index": 0, "id": "a", "type": "custom", "custom": custom, "extra_content": google}],
        [{"index": 0, "type": None, "custom": {"input": "1)"}}],
    )

    assert call == {
        "index": 0,
        "id": "a",
        "type": "custom",
        "custom": {"name": "py", "input": "print(1)"},
        "extra_content": google,
        "grammar": 1,
    }


def test_arguments_sent_as_an_object_become_text_and_null_stays_null() -> None:
    as_object = _calls([{"index": 0, "function": {"name": "f", "arguments": {"x": 1}}}])
    as_null = _calls([{"index": 0, "id": 7, "function": {"name": "f", "arguments": None}}])

    assert as_object[0]["function"]["arguments"] == '{"x":1}'
    assert (as_null[0]["function"]["arguments"], as_null[0]["id"]) == (None, None)


@pytest.mark.parametrize("fragments", [[], None, "x", [1], [{"index": 0}]])
def test_fragments_that_are_none_make_no_trouble(fragments: Any) -> None:
    assert _message(chunk({"content": "a", "tool_calls": fragments}), DONE)["content"] == "a"


def test_an_id_that_changes_with_every_fragment_of_one_index_is_the_first_one() -> None:
    [call] = _calls(
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}}],
        [{"index": 0, "id": "b", "function": {"arguments": ":1}"}}],
    )

    assert (call["id"], call["function"]) == ("a", {"name": "f", "arguments": '{"x":1}'})


def test_two_names_in_one_delta_are_two_calls_though_neither_has_its_arguments() -> None:
    calls = _calls([{"function": {"name": "f"}}, {"function": {"name": "g"}}])

    assert [call["function"]["name"] for call in calls] == ["f", "g"]
