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


def test_calls_are_calls_whatever_kind_of_tool_they_call() -> None:
    long = "x" * 500
    in_chat = {
        "tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "c", "input": "free"}}],
        "function_call": {"name": "old", "arguments": "{}"},
    }
    items = [
        {"type": "custom_tool_call", "name": "c", "input": "free"},
        {"type": "mcp_call", "name": "m", "arguments": "{}", "output": "found"},
        {"type": "custom_tool_call_output", "output": [{"type": "input_text", "text": "done"}]},
    ]
    blocks = [
        {"type": "server_tool_use", "name": "s", "input": {"q": long}},
        {"type": "bash_code_execution_tool_result", "content": [{"type": "text", "text": "out"}]},
    ]

    def calls(*texts: str) -> list[Utterance]:
        return [Utterance("assistant", "tool_call", text) for text in texts]

    def result(text: str) -> Utterance:
        return Utterance("tool", "tool_result", text)

    assert response_utterances({"choices": [{"message": in_chat}]}) == calls("c(free)", "old({})")
    assert response_utterances({"output": items}) == [
        *calls("c(free)", "m({})"),
        result("found"),
        result("done"),
    ]
    assert response_utterances({"content": blocks}) == [
        *calls(f's({{"q":"{long}"}})'),
        result("out"),
    ]


def test_thoughts_in_parts_are_thoughts() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "A"},
    ]

    assert response_utterances({"choices": [{"message": {"content": parts}}]}) == [
        Utterance("assistant", "reasoning", "hm"),
        Utterance("assistant", "text", "A"),
    ]


def test_thoughts_beside_the_text_are_thoughts_wherever_a_server_puts_them() -> None:
    details = [{"type": "reasoning.text", "text": "hm"}]
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "S"}]
    spelled = ({"reasoning": "hm"}, {"thinking": "hm"}, {"reasoning_details": details})

    for beside in (*spelled, {"thinking_blocks": blocks}):
        assert response_utterances({"choices": [{"message": {"content": "A"} | beside}]}) == [
            Utterance("assistant", "reasoning", "hm"),
            Utterance("assistant", "text", "A"),
        ]


def test_of_an_image_only_the_beginning_is_shown_and_of_a_text_all_of_it() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9_978}}
    text = {"type": "text", "text": "t" * 9_000}
    result = {"type": "tool_result", "content": [text, image]}

    shown, said, found = request_utterances(
        {"messages": [{"role": "user", "content": [image, text, result]}]}
    )

    assert shown.text.endswith('AAA… (10,000 characters)"}}')
    assert len(shown.text) < 200
    assert said.text == "t" * 9_000
    assert found.text == f"{'t' * 9_000}\n{shown.text}"


def test_what_is_nested_beyond_reason_is_not_shown() -> None:
    deep: object = 1
    for _ in range(3_000):
        deep = [deep]

    assert request_utterances({"input": [{"type": "x", "y": deep}]}) == [
        Utterance("user", "other", "(nested too deeply to be shown)")
    ]
