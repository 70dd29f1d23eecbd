"""Chat streams become the completion that the server would have sent whole."""

from typing import Any

import pytest

from nemo_gym.wire.dialects import CHAT
from nemo_gym.wire.dialects.base import Assembled
from support.reassembly import assemble, bytewise
from support.sse import DONE, chunk, event, typed


def _assemble(*events: bytes) -> Assembled:
    assembled = assemble(CHAT, [b"".join(events)])
    assert assemble(CHAT, bytewise(b"".join(events))) == assembled
    return assembled


def _response(*events: bytes) -> Any:
    return _assemble(*events).response


def _message(*events: bytes) -> Any:
    return _response(*events)["choices"][0]["message"]


def test_text_is_joined_and_the_whole_has_the_documented_shape() -> None:
    assembled = _assemble(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk(finish="stop"),
        DONE,
    )

    assert assembled.response == {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello", "refusal": None},
                "finish_reason": "stop",
            }
        ],
        "usage": None,
    }
    assert (assembled.terminal, assembled.error, assembled.notes) == ("[DONE]", None, {})


def test_usage_of_a_last_chunk_without_choices_is_taken() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}

    assert (
        _response(chunk({"content": "a"}), event({"choices": [], "usage": usage}), DONE)["usage"]
        == usage
    )


def test_the_last_usage_that_is_known_counts_and_is_not_summed() -> None:
    counts = [{"total_tokens": 1, "prompt_tokens": 1}, {"total_tokens": 2}, None]

    assert _response(*(chunk({"content": "a"}, usage=u) for u in counts), DONE)["usage"] == {
        "total_tokens": 2
    }


def test_the_old_function_call_is_joined() -> None:
    message = _message(
        chunk({"function_call": {"name": "f", "arguments": '{"x"'}}),
        chunk({"function_call": {"arguments": ":1}"}}),
        chunk({"function_call": None}),
        DONE,
    )

    assert message["function_call"] == {"name": "f", "arguments": '{"x":1}'}


def test_choices_are_assembled_by_index_each_with_its_own_reason() -> None:
    response = _response(
        chunk({"content": "a"}, index=2),
        chunk({"content": "b"}, index=0),
        chunk({"content": "c"}, index=1),
        chunk({"content": "A"}, index=2, finish="stop"),
        chunk(index=1, finish="content_filter"),
        chunk(index=0, finish="length"),
        DONE,
    )

    assert [
        (c["index"], c["message"]["content"], c["finish_reason"]) for c in response["choices"]
    ] == [(0, "b", "length"), (1, "c", "content_filter"), (2, "aA", "stop")]


def test_a_refusal_is_kept_apart_from_the_content() -> None:
    message = _message(
        chunk({"role": "assistant", "content": None, "refusal": ""}),
        chunk({"refusal": "I can"}),
        chunk({"refusal": "not"}),
        DONE,
    )

    assert (message["content"], message["refusal"]) == (None, "I cannot")


@pytest.mark.parametrize("spelling", ["reasoning", "reasoning_content"])
def test_reasoning_is_collected_under_the_spelling_of_the_server(spelling: str) -> None:
    message = _message(
        chunk({spelling: "ha"}), chunk({spelling: "ha"}), chunk({spelling: None}), DONE
    )

    assert message[spelling] == "haha"


def test_text_beside_an_empty_list_of_calls_is_text_and_no_calls() -> None:
    message = _message(chunk({"content": "a", "tool_calls": []}), DONE)

    assert message["content"] == "a"
    assert "tool_calls" not in message


def test_a_role_in_every_chunk_is_one_role() -> None:
    assert (
        _message(*(chunk({"role": "assistant", "content": "a"}) for _ in range(3)), DONE)["role"]
        == "assistant"
    )


def test_log_probabilities_are_joined() -> None:
    first = {"content": [{"token": "a"}], "refusal": None}
    second = {"content": [{"token": "b"}], "refusal": [{"token": "c"}]}
    logprobs = (first, second, {"content": None}, None)
    choices = [{"index": 0, "delta": {}, "logprobs": entry} for entry in logprobs]

    response = _response(*(event({"choices": [choice]}) for choice in choices), DONE)

    assert response["choices"][0]["logprobs"] == {
        "content": [{"token": "a"}, {"token": "b"}],
        "refusal": [{"token": "c"}],
    }


def test_lists_of_a_choice_grow_and_other_fields_of_it_are_the_last_known() -> None:
    choices = [
        {"index": 0, "delta": {}, "token_ids": [1], "stop_reason": None, "flags": {}},
        {"index": 0, "delta": {}, "token_ids": [2, 3], "stop_reason": 5, "flags": {"a": 1}},
        {"index": 0, "delta": {}, "token_ids": None, "stop_reason": None, "flags": {}},
    ]

    [choice] = _response(*(event({"choices": [c]}) for c in choices), DONE)["choices"]

    assert (choice["token_ids"], choice["stop_reason"], choice["flags"]) == ([1, 2, 3], 5, {"a": 1})


def test_the_first_id_and_model_stand_and_other_fields_are_the_last_known() -> None:
    response = _response(
        chunk({"content": "a"}, id="", model="", x={"a": 1}),
        chunk({"content": "b"}, id="c1", model="m1", system_fingerprint="f", x={"b": 2}),
        chunk({"content": "c"}, id="c2", model="m2", system_fingerprint=None, obfuscation="zz"),
        DONE,
    )

    assert (response["id"], response["model"], response["system_fingerprint"]) == ("c1", "m1", "f")
    assert response["x"] == {"a": 1, "b": 2}
    assert "obfuscation" not in response


def test_entries_of_lists_are_joined_by_index_and_type() -> None:
    details = [
        [{"type": "reasoning.text", "text": "a", "format": "x", "index": 0}],
        [{"type": "reasoning.text", "text": "b", "format": "x", "signature": "s", "index": 0}],
        [{"type": "reasoning.encrypted", "data": "z", "index": 0}],
    ]

    message = _message(*(chunk({"reasoning_details": d}) for d in details), DONE)

    assert message["reasoning_details"] == [
        {"type": "reasoning.text", "text": "ab", "format": "x", "index": 0, "signature": "s"},
        {"type": "reasoning.encrypted", "data": "z", "index": 0},
    ]


def test_nested_objects_and_lists_of_entries_are_joined() -> None:
    first = {"index": 0, "type": "t", "more": {"a": 1}, "parts": [{"index": 0, "text": "x"}]}
    second = {
        "index": 0,
        "type": "t",
        "more": {"a": None, "b": 2, "c": None},
        "parts": [{"index": 0, "text": "y"}],
    }

    message = _message(chunk({"list": [first]}), chunk({"list": [second]}), DONE)

    [entry] = message["list"]
    assert entry["more"] == {"a": 1, "b": 2, "c": None}
    assert entry["parts"] == [{"index": 0, "text": "xy"}]


def test_a_field_that_is_text_and_then_a_list_is_the_list() -> None:
    assert _message(chunk({"x": "a"}), chunk({"x": [1]}), DONE)["x"] == [1]


def test_chunks_nested_beyond_reason_do_not_stop_the_rest() -> None:
    deep = b"[" * 990 + b"]" * 990
    piece = b'{"choices":[{"index":0,"delta":{"content":"a"}}],"deep":' + deep + b"}"

    assembled = assemble(CHAT, [event(piece), event(piece), DONE])

    response: Any = assembled.response
    assert response["choices"][0]["message"]["content"] == "aa"
    # How deep values can be compared depends on the interpreter.
    assert assembled.notes in ({}, {"unparsed_events": 1})


def test_annotations_are_listed_and_audio_grows() -> None:
    message = _message(
        chunk({"annotations": [{"type": "url_citation", "url_citation": {"url": "a"}}]}),
        chunk({"annotations": [{"type": "url_citation", "url_citation": {"url": "b"}}]}),
        chunk({"audio": {"id": "x", "data": "AA", "transcript": "hel"}}),
        chunk({"audio": {"id": "x", "data": "BB", "transcript": "lo", "expires_at": 5}}),
        DONE,
    )

    assert [a["url_citation"]["url"] for a in message["annotations"]] == ["a", "b"]
    assert message["audio"] == {"id": "x", "data": "AABB", "transcript": "hello", "expires_at": 5}


def test_annotations_of_one_kind_are_never_joined() -> None:
    cited = [{"type": "url_citation", "url": u, "text": "t"} for u in ("a", "b")]
    message = _message(*(chunk({"annotations": [one]}) for one in cited), DONE)

    assert message["annotations"] == cited


def test_an_unknown_text_grows_unless_it_never_changes() -> None:
    message = _message(
        chunk({"channel": "analysis", "musing": "a", "n": 1}),
        chunk({"channel": "analysis", "musing": "b", "n": 2}),
        DONE,
    )

    assert (message["channel"], message["musing"], message["n"]) == ("analysis", "ab", 2)


def test_plain_text_and_parts_become_one_list_of_parts() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}

    message = _message(
        chunk({"content": "a"}), chunk({"content": [thought]}), chunk({"content": "b"}),
        chunk({"content": "c"}), chunk({"content": ""}), DONE,
    )  # fmt: skip

    assert message["content"] == [
        {"type": "text", "text": "a"},
        thought,
        {"type": "text", "text": "bc"},
    ]


def test_a_message_sent_as_a_whole_is_taken_where_there_is_no_delta() -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}

    assert _message(event({"choices": [choice]}), DONE)["content"] == "a"


@pytest.mark.parametrize(
    "error",
    [
        event({"error": {"message": "boom", "code": 502}}),
        event({"error": {"message": "boom", "code": 502}, "choices": []}),
        event({"error": {"message": "boom", "code": 502}}, "error"),
    ],
    ids=["bare", "with-choices", "named"],
)
@pytest.mark.parametrize("end", [DONE, b""], ids=["done", "no-done"])
def test_an_error_in_mid_stream_is_kept_beside_the_partial_text(error: bytes, end: bytes) -> None:
    assembled = _assemble(chunk({"content": "par"}), error, end)

    response: Any = assembled.response
    assert response["choices"][0]["message"]["content"] == "par"
    assert response["error"] == assembled.error == {"message": "boom", "code": 502}
    assert assembled.terminal is None


@pytest.mark.parametrize(
    "error",
    [
        event({"object": "error", "message": "boom", "code": 400}),
        event({"message": "boom"}, "error"),
        event("boom", "error"),
    ],
    ids=["object-error", "named", "named-not-json"],
)
def test_an_error_without_an_error_key_is_kept_as_it_came(error: bytes) -> None:
    assembled = _assemble(chunk({"content": "par"}), error)

    assert "boom" in str(assembled.error)


def test_a_first_event_that_is_an_error_is_all_there_is() -> None:
    assert _response(event({"error": {"message": "boom"}})) == {"error": {"message": "boom"}}


def test_events_of_another_dialect_are_flagged_and_left_out() -> None:
    assembled = _assemble(chunk({"content": "a"}), typed("response.created", response={}), DONE)

    assert assembled.notes == {"dialect_mismatch": True}
    assert "type" not in (assembled.response or {})


def test_a_stream_of_nothing_is_no_response() -> None:
    assert _assemble(b": ping\n\n").response is None
    assert _assemble(DONE).response is None


@pytest.mark.parametrize("entry", [1, {"delta": 1}, {"index": "x", "delta": {"content": "b"}}])
def test_choices_of_a_strange_shape_do_not_stop_the_rest(entry: Any) -> None:
    message = _message(event({"choices": [entry]}), chunk({"content": "a"}), DONE)

    assert message["content"] in {"a", "ba"}


def test_an_event_that_ends_the_stream_by_its_name_is_taken_once() -> None:
    said = {"id": "c1", "choices": [{"index": 0, "delta": {"content": "a"}}]}

    assembled = _assemble(event(said), event(said, "error"))

    assert assembled.error is not None
    assert assembled.response is not None
    assert assembled.response["choices"] == _response(event(said), event(said))["choices"]
