"""Messages streams become the message that the server would have sent whole."""

from typing import Any

import pytest

from nemo_gym.wire.dialects import MESSAGES
from nemo_gym.wire.dialects.base import Assembled
from support.reassembly import assemble, bytewise
from support.sse import block, chunk, event, message_end, message_start, typed

_TEXT = {"type": "text", "text": ""}
_TOOL = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": text}


def _json(text: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": text}


def _assemble(*events: bytes) -> Assembled:
    assembled = assemble(MESSAGES, [b"".join(events)])
    assert assemble(MESSAGES, bytewise(b"".join(events))) == assembled
    return assembled


def _response(*events: bytes) -> Any:
    return _assemble(*events).response


def test_blocks_are_filled_and_the_whole_has_the_documented_shape() -> None:
    assembled = _assemble(
        message_start(input_tokens=5, output_tokens=1),
        typed("ping"),
        block(0, _TEXT, _text("Hel"), _text("lo")),
        block(1, _TOOL, _json(""), _json('{"x"'), _json(": 1}")),
        message_end("tool_use", output_tokens=9),
    )

    assert assembled.response == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "Hello"}, _TOOL | {"input": {"x": 1}}],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 5, "output_tokens": 9},
    }
    assert (assembled.terminal, assembled.error, assembled.notes) == ("message_stop", None, {})


@pytest.mark.parametrize(
    ("fragments", "value"),
    [
        ([], {}),
        ([""], {}),
        (['{"a": "x\\', 'ny"}'], {"a": "x\ny"}),
        (['{"a": "\\u00', 'e9"}'], {"a": "é"}),
        (['{"a": "\\ud83d', '\\ude00"}'], {"a": "😀"}),
        (["[1]"], [1]),
    ],
)
def test_the_input_of_a_tool_is_its_fragments_joined_and_read(
    fragments: list[str], value: object
) -> None:
    assembled = _assemble(
        message_start(),
        block(0, _TOOL, *[_json(text) for text in fragments]),
        message_end("tool_use"),
    )

    response: Any = assembled.response
    assert response["content"][0]["input"] == value
    assert assembled.notes == {}


def test_an_input_that_is_no_json_stays_text_and_is_noted() -> None:
    assembled = _assemble(message_start(), block(0, _TOOL, _json('{"a": nope}')), message_end())

    response: Any = assembled.response
    assert response["content"][0]["input"] == '{"a": nope}'
    assert assembled.notes == {"tool_arguments_incomplete": {"t1": '{"a": nope}'}}


def test_an_input_that_was_cut_is_read_as_far_as_it_came_and_its_text_is_noted() -> None:
    text = '{"a": [1, 2], "b": "unfin'
    assembled = _assemble(
        message_start(), block(0, _TOOL, _json(text), stop=False), message_end("max_tokens")
    )

    response: Any = assembled.response
    assert response["content"][0]["input"] == {"a": [1, 2]}
    assert assembled.notes == {
        "tool_arguments_incomplete": {"t1": text},
        "unterminated_items": 1,
    }


def test_an_incomplete_input_without_an_id_is_noted_by_its_place() -> None:
    tool = {"type": "tool_use", "name": "f", "input": {}}
    notes = _assemble(message_start(), block(0, tool, _json("{")), message_end()).notes

    assert notes == {"tool_arguments_incomplete": {"#0": "{"}}


def test_thinking_grows_and_its_signature_is_the_last_one() -> None:
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    deltas = [
        {"type": "thinking_delta", "thinking": "a"},
        {"type": "thinking_delta", "thinking": "b"},
        {"type": "signature_delta", "signature": "s1"},
        {"type": "signature_delta", "signature": "s2"},
    ]

    response = _response(message_start(), block(0, thinking, *deltas), message_end())

    assert response["content"] == [{"type": "thinking", "thinking": "ab", "signature": "s2"}]


def test_citations_are_listed_and_unknown_deltas_replace() -> None:
    deltas: list[dict[str, Any]] = [
        {"type": "citations_delta", "citation": {"cited_text": "a"}},
        {"type": "citations_delta", "citation": {"cited_text": "b"}},
        {"type": "compaction_delta", "content": "c", "encrypted_content": "e"},
    ]

    response = _response(message_start(), block(0, _TEXT, *deltas), message_end())

    assert response["content"] == [
        {
            "type": "text",
            "text": "",
            "citations": [{"cited_text": "a"}, {"cited_text": "b"}],
            "content": "c",
            "encrypted_content": "e",
        }
    ]


def test_interleaved_blocks_are_told_apart_by_index() -> None:
    start = [
        typed("content_block_start", index=i, content_block=_TEXT) for i in (0, 1)
    ]  # fmt: skip
    deltas = [
        typed("content_block_delta", index=i, delta=_text(t))
        for i, t in ((0, "a"), (1, "x"), (0, "b"), (1, "y"))
    ]
    stops = [typed("content_block_stop", index=i) for i in (0, 1)]

    response = _response(message_start(), *start, *deltas, *stops, message_end())

    assert [b["text"] for b in response["content"]] == ["ab", "xy"]


@pytest.mark.parametrize(
    ("start", "delta", "usage"),
    [
        (
            {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20},
            {"output_tokens": 50},
            (5, 100, 20, 50),
        ),
        (
            {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20},
            {"output_tokens": 50, "cache_read_input_tokens": 100},
            (5, 100, 20, 50),
        ),
        (
            {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20},
            {
                "output_tokens": 50,
                "input_tokens": 0,
                "cache_read_input_tokens": 0,
                "cache_creation_input_tokens": 0,
            },
            (5, 100, 20, 50),
        ),
        (
            {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20},
            {"output_tokens": 50, "input_tokens": 5, "cache_read_input_tokens": 0},
            (5, 100, 20, 50),
        ),
        (
            {"input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0},
            {"output_tokens": 50, "input_tokens": 32},
            (32, 0, 0, 50),
        ),
        (
            {"input_tokens": 100, "cache_read_input_tokens": 55, "cache_creation_input_tokens": 0},
            {"output_tokens": 50, "input_tokens": 181, "cache_read_input_tokens": 0},
            (181, 0, 0, 50),
        ),
        (
            {"input_tokens": 5},
            {
                "output_tokens": 50,
                "cache_read_input_tokens": 0,
                "cache_creation_input_tokens": None,
            },
            (5, 0, None, 50),
        ),
    ],
    ids=["omitted", "repeated", "zeros", "half-zeros", "zero-start", "recounted", "new-keys"],
)
def test_totals_of_the_last_delta_replace_those_of_the_start(
    start: dict[str, Any], delta: dict[str, Any], usage: tuple[int | None, ...]
) -> None:
    found = _response(
        message_start(**start, output_tokens=1), block(0, _TEXT), message_end(**delta)
    )["usage"]

    assert usage == (
        found["input_tokens"],
        found.get("cache_read_input_tokens"),
        found.get("cache_creation_input_tokens"),
        found["output_tokens"],
    )


def test_a_breakdown_of_zeros_does_not_replace_one_of_counts() -> None:
    counted = {"ephemeral_5m_input_tokens": 20}
    found = _response(
        message_start(cache_creation=counted, cache_creation_input_tokens=20),
        message_end(cache_creation={"ephemeral_5m_input_tokens": 0}, output_tokens=1),
    )["usage"]

    assert found["cache_creation"] == counted


def test_what_a_message_delta_adds_is_kept_but_null_replaces_nothing() -> None:
    delta = {"stop_reason": "refusal", "stop_details": {"a": 1}, "container": None}
    end = typed("message_delta", delta=delta, context_management={"b": 2}, other=None)

    response = _response(message_start(), end, typed("message_delta", delta={"stop_reason": None}))

    assert response["stop_reason"] == "refusal"
    assert (response["stop_details"], response["container"]) == ({"a": 1}, None)
    assert response["context_management"] == {"b": 2}


@pytest.mark.parametrize(
    ("delta", "kind"),
    [
        ({"type": "text_delta", "text": "a"}, "text"),
        ({"type": "thinking_delta", "thinking": "a"}, "thinking"),
        ({"type": "signature_delta", "signature": "a"}, "thinking"),
        ({"type": "input_json_delta", "partial_json": "{}"}, "tool_use"),
        ({"type": "citations_delta", "citation": {"cited_text": "a"}}, "text"),
    ],
)
def test_a_block_that_nobody_started_has_the_type_of_what_fills_it(
    delta: dict[str, Any], kind: str
) -> None:
    content = _response(
        message_start(), typed("content_block_delta", index=0, delta=delta), message_end()
    )["content"]

    assert [b["type"] for b in content] == [kind]


def test_content_that_comes_with_the_start_is_kept() -> None:
    message = {"id": "m", "content": [{"type": "text", "text": "a"}]}

    assembled = _assemble(
        typed("message_start", message=message),
        typed("content_block_delta", index=0, delta=_text("b")),
        typed("message_stop"),
    )

    response: Any = assembled.response
    assert response["content"] == [{"type": "text", "text": "ab"}]
    assert assembled.notes == {}


def test_an_error_event_is_kept_beside_what_came() -> None:
    error = {"type": "overloaded_error", "message": "Overloaded"}

    assembled = _assemble(
        message_start(), block(0, _TEXT, _text("par"), stop=False), typed("error", error=error)
    )

    response: Any = assembled.response
    assert response["content"] == [{"type": "text", "text": "par"}]
    assert response["error"] == assembled.error == error
    assert (assembled.terminal, response["stop_reason"]) == (None, None)


@pytest.mark.parametrize(
    "error", [event({"error": {"message": "boom"}}), typed("error", message="boom")]
)
def test_an_error_of_another_shape_is_an_error_too(error: bytes) -> None:
    assert "boom" in str(_assemble(message_start(), error).error)


def test_a_clean_close_without_the_last_event_has_no_terminal() -> None:
    assembled = _assemble(message_start(), block(0, _TEXT, _text("a")))

    response: Any = assembled.response
    assert (assembled.terminal, assembled.error, response["stop_reason"]) == (None, None, None)


def test_a_gateway_that_begins_again_is_noted() -> None:
    assembled = _assemble(
        message_start(input_tokens=1), block(0, _TEXT, _text("lost")),
        message_start(input_tokens=2), block(0, _TEXT, _text("kept")), message_end(),
    )  # fmt: skip

    response: Any = assembled.response
    assert [b["text"] for b in response["content"]] == ["kept"]
    assert assembled.notes == {"message_restarts": 1}


def test_the_model_that_takes_over_is_the_model() -> None:
    handover = {"type": "fallback", "from": {"model": "m"}, "to": {"model": "n"}}

    assert _response(message_start(), block(0, handover), message_end())["model"] == "n"
    assert _response(block(0, handover), message_end())["model"] == "n"


@pytest.mark.parametrize("leak", [chunk({"content": "a"}), typed("response.created", response={})])
def test_events_of_another_dialect_are_flagged(leak: bytes) -> None:
    assert _assemble(message_start(), leak, message_end()).notes == {"dialect_mismatch": True}


def test_a_sentinel_before_the_end_ends_reading_without_a_terminal_event() -> None:
    assembled = _assemble(message_start(), event("[DONE]"), message_end())

    assert assembled.terminal is None


@pytest.mark.parametrize(
    "strange",
    [
        typed("content_block_delta", index=3, delta=_text("x")),
        typed("content_block_delta", index="a", delta=_text("x")),
        typed("content_block_delta", index=0, delta=None),
        typed("content_block_start", index=0, content_block=None),
        typed("content_block_stop", index=9),
        typed("message_delta", delta=None, usage=None),
        typed("message_start", message=None),
        typed("something_new", index=0),
    ],
)
def test_events_of_a_strange_shape_do_not_stop_the_rest(strange: bytes) -> None:
    assembled = _assemble(strange, block(1, _TEXT, _text("a")), message_end())

    response: Any = assembled.response
    assert "a" in [b.get("text") for b in response["content"]]
    assert assembled.terminal == "message_stop"


def test_nothing_is_no_response() -> None:
    assert _assemble(typed("ping")).response is None


def test_half_a_character_in_a_tool_s_cut_input_costs_nothing_but_itself() -> None:
    delta = (
        b'{"type": "input_json_delta", "partial_json": "{\\"to\\": \\"ann\\", \\"x\\": \\"\\ud83d"}'
    )
    halved = event(b'{"type": "content_block_delta", "index": 0, "delta": ' + delta + b"}")

    response = _response(message_start(), block(0, _TOOL, stop=False), halved)

    assert response["content"][0]["input"]["to"] == "ann"
