"""What a conversation looks like to a reader, in each dialect."""

from nemo_gym.wire.transcript import Utterance, request_utterances, response_utterances


def test_a_chat_request_has_its_messages_and_tool_results() -> None:
    said = request_utterances(
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": '{"a":1}'}}],
                },
                {"role": "tool", "tool_call_id": "1", "content": "ok"},
            ]
        }
    )

    assert said == [
        Utterance("system", "text", "Be brief."),
        Utterance("user", "text", "Hi"),
        Utterance("assistant", "tool_call", 'f({"a":1})'),
        Utterance("tool", "tool_result", "ok"),
    ]


def test_a_responses_request_has_its_instructions_and_items() -> None:
    said = request_utterances(
        {
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": "Hi"},
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
                {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "1", "output": "ok"},
                {"type": "item_of_next_year", "x": 1},
            ],
        }
    )

    assert said == [
        Utterance("system", "text", "Be brief."),
        Utterance("user", "text", "Hi"),
        Utterance("assistant", "reasoning", "hm"),
        Utterance("assistant", "tool_call", "f({})"),
        Utterance("tool", "tool_result", "ok"),
        Utterance("user", "other", '{"type":"item_of_next_year","x":1}'),
    ]


def test_what_is_empty_is_not_shown() -> None:
    said = request_utterances(
        {
            "input": [
                {"role": "user", "content": ""},
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": ""}]},
                {"role": "assistant", "content": [], "refusal": ""},
            ]
        }
    )

    assert said == []


def test_a_plain_input_is_the_users() -> None:
    assert request_utterances({"input": "Hi"}) == [Utterance("user", "text", "Hi")]


def test_a_messages_exchange_has_its_blocks() -> None:
    asked = request_utterances(
        {
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "content": [{"type": "text", "text": "ok"}]},
                        {"type": "image", "source": {}},
                    ],
                }
            ],
        }
    )
    answered = response_utterances(
        {
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "Yes."},
                {"type": "tool_use", "name": "f", "input": {"a": 1}},
            ]
        }
    )

    assert asked == [
        Utterance("system", "text", "Be brief."),
        Utterance("tool", "tool_result", "ok"),
        Utterance("user", "other", '{"type":"image","source":{}}'),
    ]
    assert answered == [
        Utterance("assistant", "reasoning", "hm"),
        Utterance("assistant", "text", "Yes."),
        Utterance("assistant", "tool_call", 'f({"a":1})'),
    ]


def test_every_choice_of_a_chat_response_is_shown_and_refusals_are_named() -> None:
    said = response_utterances(
        {
            "choices": [
                {"message": {"role": "assistant", "content": "A", "reasoning_content": "hm"}},
                {"message": {"role": "assistant", "content": None, "refusal": "No."}},
            ]
        }
    )

    assert said == [
        Utterance("assistant", "reasoning", "hm"),
        Utterance("assistant", "text", "A"),
        Utterance("assistant", "refusal", "No."),
    ]


def test_a_responses_output_and_an_error_are_shown() -> None:
    said = response_utterances(
        {
            "output": [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [
                        {"type": "output_text", "text": "A"},
                        {"type": "refusal", "refusal": "No."},
                    ],
                }
            ],
            "error": {"message": "cut"},
        }
    )

    assert said == [
        Utterance("assistant", "text", "A"),
        Utterance("assistant", "refusal", "No."),
        Utterance("error", "other", "cut"),
    ]
