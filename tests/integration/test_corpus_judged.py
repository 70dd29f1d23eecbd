"""Recorded streams on which the official SDKs fail or differ: what we make of them, and why.

Expectations are read off the recordings by hand; `docs/decisions/011-assembly-by-kind.md` has the
reasons, one by one.
"""

from pathlib import Path
from typing import Any

import pytest

from nemo_gym.wire.dialects.base import Assembled
from support.corpus import Recording, needs_corpus, streams
from support.reassembly import assemble

pytestmark = [needs_corpus, pytest.mark.corpus]


def _judged() -> dict[str, Recording]:
    return {r.name: r for r in streams() if r.use in {"judge", "none"}}


@pytest.fixture(scope="module")
def judged() -> dict[str, Recording]:
    return _judged()


def _named(judged: dict[str, Recording], name: str) -> Assembled:
    recording = judged[name]
    return assemble(recording.dialect, recording.as_received())


def _message(assembled: Assembled, place: int = 0) -> Any:
    response: Any = assembled.response
    return response["choices"][place]["message"]


@pytest.mark.parametrize(
    ("name", "call_id", "tool", "arguments"),
    [
        ("anthropic-fallback-tool-call-10194", "toolu_sanitized", "read_file", '{"path": "a.txt"}'),
        (
            "mistral-test-mistral-chat-model-acomplete-list-three-fruits-outp-04187",
            "XubyS1qTd",
            "return_list_of_str",
            '{"value": ["apple", "banana", "cherry"]}',
        ),
        (
            "ollama-test-openai-chat-model-complete-ollama-return-true-output-04226",
            "call_kve3oltz",
            "return_bool",
            '{"value":true}',
        ),
        (
            "zai-glm-4-5-flash-object-streaming-08460",
            "call_FzBKGbS-QYuXITh43YUguQ",
            "structured_output",
            '{"name": "Alex Johnson", "age": 28, "occupation": "Software Engineer"}',
        ),
        (
            "zai-glm-4-5-flash-object-streaming-10045",
            "call_sD00cGowS7-g9zVI3121Og",
            "structured_output",
            '{"name": "Alex Johnson", "age": 28, "occupation": "Software Engineer"}',
        ),
    ],
    ids=["index-from-one", "no-index", "no-index-in-one-chunk", "index-minus-one", "the-same"],
)
def test_a_call_is_one_call_whatever_its_index(
    judged: dict[str, Recording], name: str, call_id: str, tool: str, arguments: str
) -> None:
    [call] = _message(_named(judged, name))["tool_calls"]

    assert (call["id"], call["function"]) == (call_id, {"name": tool, "arguments": arguments})


def test_arguments_that_were_cut_stay_text_and_are_noted(judged: dict[str, Recording]) -> None:
    assembled = _named(judged, "llamacpp-streaming-tool-call-cut-mid-arguments-05129")

    [call] = _message(assembled)["tool_calls"]
    assert call["function"]["arguments"] == '{"note": "The'
    assert assembled.notes == {"tool_arguments_incomplete": {call["id"]: '{"note": "The'}}
    assert assembled.terminal == "[DONE]"


def test_a_choice_without_a_finish_reason_stays_and_the_last_known_usage_counts(
    judged: dict[str, Recording],
) -> None:
    response: Any = _named(
        judged, "local-server-completion-stream-multiple-choices-proxy-01936"
    ).response

    assert [choice["finish_reason"] for choice in response["choices"]] == ["stop", None]
    text = "Not much, just here to help. How can I assist you today?"
    assert [choice["message"]["content"] for choice in response["choices"]] == [text, text]
    assert response["usage"]["total_tokens"] == 40


def test_content_in_parts_is_a_list_of_parts_whose_texts_are_joined(
    judged: dict[str, Recording],
) -> None:
    content = _message(_named(judged, "mistral-reasoning-10177"))["content"]

    thought = "The user is asking for 2+2. This is basic arithmetic. 2+2=4."
    assert content == [
        {"type": "thinking", "thinking": [{"type": "text", "text": thought}]},
        {"type": "text", "text": "2 + 2 = 4"},
    ]


def test_parts_and_plain_text_make_one_list(judged: dict[str, Recording]) -> None:
    content = _message(_named(judged, "mistral-v1-chat-completions-post-ccfa08da-01814"))["content"]

    assert [part["type"] for part in content] == ["thinking", "text"]
    assert content[1]["text"] == "What is 2+2?\n\\[ 2 + 2 = 4 \\]\n\n${answer}"


def test_log_probabilities_that_are_a_number_do_not_stop_the_text(
    judged: dict[str, Recording],
) -> None:
    assembled = _named(judged, "openrouter-qwen3-next-80b-a3b-thinking-reasoning-streaming-08105")

    message = _message(assembled)
    assert message["content"].startswith("15 multiplied by 3 is calculated as follows:")
    assert message["content"].endswith("Answer:** 45")
    assert message["reasoning"].startswith("Okay, so I need to figure out what 15 times 3 is.")
    assert len(message["reasoning_details"]) == 1


def test_log_probabilities_of_the_first_chunk_count_once(judged: dict[str, Recording]) -> None:
    response: Any = _named(judged, "openrouter-streaming-gpt-4-1-mini-stop-top-two-05815").response

    [token] = response["choices"][0]["logprobs"]["content"]
    assert (token["token"], len(token["top_logprobs"])) == ("42", 2)


def test_reasoning_details_without_an_index_are_joined(judged: dict[str, Recording]) -> None:
    message = _message(_named(judged, "openrouter-test-openrouter-streaming-reasoning-02691"))

    [detail] = message["reasoning_details"]
    assert detail["text"] == message["reasoning"]
    assert message["content"].startswith("That's a clever way to put it!")


def test_a_server_side_tool_that_is_told_twice_is_told_once(judged: dict[str, Recording]) -> None:
    assembled = _named(judged, "groq-test-groq-model-web-search-tool-stream-00479")

    [tool] = _message(assembled)["executed_tools"]
    assert tool["arguments"] == '{"query": "What is the weather in San Francisco today?"}'
    assert tool["output"]
    assert _message(assembled)["role"] == "assistant"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "groq-test-tool-use-failed-error-streaming-with-text-00495",
            "Tool choice is required, but model did not call a tool",
        ),
        (
            "openrouter-llama-3-3-70b-instruct-free-object-streaming-09255",
            "Upstream error from Venice: EngineCore encountered an issue. "
            "See stack trace (above) for the root cause.",
        ),
        (
            "groq-ama-4-scout-17b-16e-instruct-object-streaming-07260",
            "tool call validation failed: parameters for tool structured_output did not match "
            "schema: errors: [`/age`: expected integer, but got string]",
        ),
        ("handwritten-overloaded-first-event", "Overloaded"),
        ("handwritten-overloaded-mid-stream", "Overloaded"),
    ],
)
def test_an_error_inside_a_stream_is_kept_with_what_came_before(
    judged: dict[str, Recording], name: str, message: str
) -> None:
    assembled = _named(judged, name)

    response: Any = assembled.response
    assert response["error"]["message"] == message
    assert assembled.terminal is None


def test_the_text_before_an_error_is_kept(judged: dict[str, Recording]) -> None:
    chat = _named(judged, "groq-test-tool-use-failed-error-streaming-with-text-00495")
    messages: Any = _named(judged, "handwritten-overloaded-mid-stream").response

    assert _message(chat)["content"] == "maybe"
    assert messages["content"] == [{"type": "text", "text": "Hello"}]


def test_the_model_that_took_over_in_mid_stream_is_the_model(
    judged: dict[str, Recording],
) -> None:
    recording = judged["anthropic-fallback-10105"]
    response: Any = _named(judged, "anthropic-fallback-10105").response

    assert response["model"] == recording.expected["model"] == "claude-opus-4-8"
    assert response["usage"] == recording.expected["usage"]


def test_a_sentinel_after_the_end_changes_nothing(judged: dict[str, Recording]) -> None:
    assembled = _named(judged, "anthropic-gateway-message-delta-metadata-04537")

    response: Any = assembled.response
    assert (assembled.terminal, assembled.notes) == ("message_stop", {})
    usage = response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["cost"]) == (32, 16, 0.000112)


def test_a_message_that_begins_again_replaces_the_one_before(judged: dict[str, Recording]) -> None:
    assembled = _named(judged, "anthropic-spliced-message-start-10144")

    response: Any = assembled.response
    assert response["id"] == "msg_second"
    assert [block.get("input") for block in response["content"]] == [None, {"value": "Sparkle Day"}]
    assert assembled.notes == {"message_restarts": 1}


def test_every_recording_without_a_verdict_has_its_reason_and_its_test(
    judged: dict[str, Recording],
) -> None:
    page = Path(__file__).parents[2] / "docs" / "decisions" / "011-assembly-by-kind.md"
    explained, tested = page.read_text(), Path(__file__).read_text()

    # Of two that differ in their numbers alone the second is written as `…-10045`.
    named = {n for n in judged if n in explained or f"`…-{n.rpartition('-')[2]}`" in explained}
    assert named == {name for name in judged if f'"{name}"' in tested} == set(judged)
