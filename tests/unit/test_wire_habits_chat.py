"""Habits of servers that speak Chat, written from their documentation: each amounts to the whole.

What is expected is what the same server answers without streaming.
"""

from typing import Any

import pytest

from nemo_gym.records.model_call import ModelCallRecord, build
from nemo_gym.wire.dialects import CHAT
from nemo_gym.wire.dialects.base import Assembled
from support.reassembly import assemble, bytewise
from support.sse import DONE, chunk, event


def _assemble(*events: bytes) -> Assembled:
    assembled = assemble(CHAT, [b"".join(events)])
    assert assemble(CHAT, bytewise(b"".join(events))) == assembled
    return assembled


def _choices(*events: bytes) -> Any:
    response: Any = _assemble(*events).response
    return response["choices"]


def _record(*events: bytes) -> ModelCallRecord:
    assembled = _assemble(*events)
    return build({"dialect": "chat", "response": assembled.response, "notes": assembled.notes}, 0)


def _choice(delta: dict[str, Any], **fields: Any) -> bytes:
    return event(
        {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta} | fields]},
    )


def test_usage_that_a_choice_carries_is_counted() -> None:
    usage = {"prompt_tokens": 19, "completion_tokens": 13, "total_tokens": 32, "cached_tokens": 5}

    record = _record(chunk({"content": "a"}), _choice({}, finish_reason="stop", usage=usage), DONE)

    assert (record.tokens_in, record.tokens_out, record.tokens_total) == (19, 13, 32)
    assert (record.cached_tokens, record.cache_hit) == (5, True)


def test_usage_of_the_whole_goes_before_that_of_a_choice() -> None:
    carried = {"prompt_tokens": 1, "completion_tokens": 1}
    whole = event({"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3}})

    record = _record(chunk({"content": "a"}), _choice({}, usage=carried), whole, DONE)

    assert (record.tokens_in, record.tokens_out) == (2, 3)


def test_a_call_without_a_list_around_it_is_a_call() -> None:
    fragments = [{"name": "f", "arguments": '{"a"'}, {"name": None, "arguments": ": 1}"}]

    record = _record(
        *(
            chunk({"tool_calls": {"index": 0, "id": "", "type": "function", "function": body}})
            for body in fragments
        ),
        chunk(finish="tool_calls"),
        DONE,
    )

    assert record.tool_calls == [{"call_id": "", "name": "f", "arguments": {"a": 1}}]


def test_text_beside_the_message_grows_with_it() -> None:
    [choice] = _choices(
        _choice({"content": "he"}, text="he", seed=7),
        _choice({"content": "he"}, text="he", seed=7),
        _choice({"content": ""}, text="", seed=7, finish_reason="stop"),
        DONE,
    )

    assert (choice["message"]["content"], choice["text"], choice["seed"]) == ("hehe", "hehe", 7)


def test_padding_is_no_part_of_the_response() -> None:
    response = _assemble(
        chunk({"content": "a"}, p="abcdef"), chunk({"content": "b"}, obfuscation="x9"), DONE
    ).response

    assert response is not None
    assert not {"p", "obfuscation"} & set(response)


def test_an_error_in_an_extension_is_an_error_though_clients_read_on() -> None:
    assembled = _assemble(
        chunk({"content": "a"}),
        chunk(finish="stop", x_groq={"id": "req_1", "error": "over capacity"}),
        chunk({"content": "b"}),
        DONE,
    )

    response: Any = assembled.response
    assert response["choices"][0]["message"]["content"] == "ab"
    assert (assembled.error, assembled.terminal) == ("over capacity", None)
    assert response["x_groq"] == {"id": "req_1", "error": "over capacity"}


def test_images_are_listed_each_as_it_came() -> None:
    def image(data: str) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}

    numbered = [image("AA") | {"index": 0}, image("BB") | {"index": 1}]
    for images in (numbered, [image("AA"), image("BB")]):
        [choice] = _choices(*(chunk({"content": "", "images": [i]}) for i in images), DONE)
        assert choice["message"]["images"] == images


def test_references_between_texts_stay_apart() -> None:
    parts = [
        {"type": "text", "text": "a"},
        {"type": "reference", "reference_ids": [1]},
        {"type": "reference", "reference_ids": [2]},
    ]

    [choice] = _choices(*(chunk({"content": [p]}) for p in parts), chunk({"content": "b"}), DONE)

    assert choice["message"]["content"] == [*parts, {"type": "text", "text": "b"}]


def test_thinking_blocks_beside_reasoning_grow_and_are_signed() -> None:
    def block(text: str, **more: Any) -> list[dict[str, Any]]:
        return [{"type": "thinking", "thinking": text} | more]

    record = _record(
        chunk({"reasoning_content": "a", "thinking_blocks": block("a", signature=None)}),
        chunk({"reasoning_content": "b", "thinking_blocks": block("b")}),
        chunk({"thinking_blocks": block("", signature="S")}),
        chunk({"content": "t"}, finish="stop"),
        DONE,
    )

    assert record.reasoning_content == "ab"
    message: Any = (record.response or {})["choices"][0]["message"]
    assert message["thinking_blocks"] == block("ab", signature="S")


def test_what_a_call_carries_for_its_provider_stays_with_it() -> None:
    def call(name: str, **more: Any) -> list[dict[str, Any]]:
        body = {"name": name, "arguments": "{}"}
        return [{"index": 0, "id": f"id-{name}", "type": "function", "function": body} | more]

    signed = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
    [choice] = _choices(
        chunk({"tool_calls": call("a", **signed)}), chunk({"tool_calls": call("b")}), DONE
    )

    assert choice["message"]["tool_calls"] == [*call("a", **signed), *call("b")]


def test_token_ids_and_log_probabilities_grow_and_usage_in_every_chunk_is_the_last() -> None:
    def usage(completed: int) -> dict[str, Any]:
        return {"prompt_tokens": 2, "completion_tokens": completed, "total_tokens": 2 + completed}

    def probable(token: str) -> dict[str, Any]:
        return {"content": [{"token": token, "logprob": -0.5, "bytes": [97], "top_logprobs": []}]}

    response: Any = _assemble(
        chunk({"role": "assistant", "content": ""}, prompt_token_ids=[1, 2], usage=usage(0)),
        _choice({"content": "a"}, logprobs=probable("a"), token_ids=[5]),
        _choice({"content": "b"}, logprobs=probable("b"), token_ids=[6], finish_reason="stop"),
        event({"choices": [], "usage": usage(2)}),
        DONE,
    ).response

    [choice] = response["choices"]
    assert response["prompt_token_ids"] == [1, 2]
    assert choice["token_ids"] == [5, 6]
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == ["a", "b"]
    assert response["usage"] == usage(2)


def test_a_first_chunk_that_only_filters_the_prompt_gives_the_response_nothing_wrong() -> None:
    filtered = [{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": False}}}]
    first = {"choices": [], "created": 0, "id": "", "model": "", "object": ""}
    late = {"content_filter_offsets": {"start": 0}, "content_filter_results": {}, "index": 0}

    response: Any = _assemble(
        event(first | {"prompt_filter_results": filtered}),
        chunk({"role": "assistant", "content": "a"}),
        chunk(finish="stop"),
        event(first | {"choices": [late | {"finish_reason": None, "logprobs": None}]}),
        DONE,
    ).response

    assert (response["id"], response["model"], response["created"]) == ("c1", "m", 1)
    assert response["prompt_filter_results"] == filtered
    assert response["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("said", [None, "", [], {}, 0, False])
def test_an_error_field_that_says_nothing_is_no_error(said: object) -> None:
    assembled = _assemble(chunk({"content": "a"}, error=said), chunk(finish="stop"), DONE)

    assert (assembled.error, assembled.terminal) == (None, "[DONE]")
