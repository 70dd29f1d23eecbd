"""A stored exchange becomes the record that users read."""

from typing import Any

import pytest

from nemo_gym.records.model_call import PAYLOAD_FIELDS, ModelCallRecord, build
from nemo_gym.records.refs import ModelServerRef

_LINE: dict[str, Any] = {
    "model_call_id": "863410a8d52e4be6a31efc5c6e9d4629",
    "dialect": "responses",
    "model_ref": {"type": "responses_api_models", "name": "policy_model"},
    "started_at": 1786032154.12,
    "completed_at": 1786032154.96,
    "latency_ms": 842.7,
    "latency_ttft_ms": 213.4,
    "status_code": 200,
    "error_category": None,
    "request": {"model": "gpt-4.1", "input": [{"role": "user", "content": "Which?"}]},
    "response": {
        "id": "resp_123",
        "model": "gpt-4.1-2025-04-14",
        "status": "completed",
        "usage": {"input_tokens": 94, "output_tokens": 28, "total_tokens": 122},
    },
}


def _line(**changes: Any) -> dict[str, Any]:
    return {**_LINE, **changes}


def test_the_documented_line_becomes_the_documented_record() -> None:
    record = build(_LINE, 3)

    assert record.model_dump(exclude=set(PAYLOAD_FIELDS)) == {
        "model_call_id": "863410a8d52e4be6a31efc5c6e9d4629",
        "response_id": "resp_123",
        "call_index": 3,
        "model_ref": {"type": "responses_api_models", "name": "policy_model"},
        "model": "gpt-4.1-2025-04-14",
        "dialect": "responses",
        "status_code": 200,
        "response_status": "completed",
        "finish_reason": None,
        "tokens_in": 94,
        "tokens_out": 28,
        "tokens_reasoning": None,
        "tokens_total": 122,
        "cache_hit": None,
        "cached_tokens": None,
        "cache_creation_tokens": None,
        "latency_total_ms": 842.7,
        "latency_ttft_ms": 213.4,
        "started_at": 1786032154.12,
        "completed_at": 1786032154.96,
        "error_category": None,
        "response_source": None,
        "upstream_attempted": None,
        "upstream_status_code": None,
        "local_response_reason": None,
        "client_session_id": None,
        "client_assistant_message_id": None,
        "tool_calls": [],
        "reasoning_content": None,
    }
    assert (record.request, record.response) == (_LINE["request"], _LINE["response"])
    assert (record.request_raw, record.response_raw) == (None, None)


def test_optional_keys_of_a_line_are_carried_over() -> None:
    optional = {
        "request_raw": "q",
        "response_raw": "r",
        "response_source": "local",
        "upstream_attempted": False,
        "upstream_status_code": 503,
        "local_response_reason": "upstream_unreachable",
        "client_session_id": "s",
        "client_assistant_message_id": "m",
    }

    record = build(_line(**optional), 0)

    assert {key: getattr(record, key) for key in optional} == optional


def test_a_record_needs_an_index_and_the_clients_ids_only() -> None:
    required = {n for n, f in ModelCallRecord.model_fields.items() if f.is_required()}

    assert required == {"call_index", "client_session_id", "client_assistant_message_id"}


def test_fields_of_a_wrong_type_count_as_not_known() -> None:
    wrong = {key: ["strange"] for key in _LINE}

    record = build({**wrong, "response_source": "elsewhere", "latency_ms": True}, 0)

    known = record.model_dump(exclude={"call_index", "tool_calls", "response_status"})
    assert set(known.values()) == {None}
    assert build({}, 0).model_ref is None


def test_the_model_that_was_asked_for_is_named_where_no_answer_names_one() -> None:
    assert build(_line(response=None), 0).model == "gpt-4.1"
    assert build(_line(response=None, request=None), 0).model is None


@pytest.mark.parametrize(
    ("dialect", "response", "category", "status"),
    [
        ("responses", {"status": "completed"}, None, "completed"),
        ("responses", {"status": "incomplete"}, "incomplete", "incomplete"),
        ("responses", {"status": "failed"}, "upstream_error", "failed"),
        ("responses", {"status": "queued"}, None, "queued"),
        ("responses", {"status": "in_progress"}, "stream_truncated", "incomplete"),
        ("responses", {"status": "in_progress"}, "cancelled", "cancelled"),
        ("responses", {}, None, "completed"),
        ("chat", {"status": "odd"}, None, "completed"),
        ("chat", {}, "upstream_error", "failed"),
        ("messages", None, "rate_limit", "failed"),
        ("messages", {}, "cancelled", "cancelled"),
        ("messages", {}, "stream_truncated", "incomplete"),
    ],
)
def test_the_status_is_the_response_s_own_where_it_has_a_settled_one(
    dialect: str, response: object, category: str | None, status: str
) -> None:
    record = build(_line(dialect=dialect, response=response, error_category=category), 0)

    assert record.response_status == status


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ({"choices": [{"finish_reason": "tool_calls"}, {"finish_reason": "stop"}]}, "tool_calls"),
        ({"choices": []}, None),
        ({"choices": ["strange"]}, None),
        ({"stop_reason": "end_turn"}, "end_turn"),
        ({"incomplete_details": {"reason": "max_output_tokens"}}, "max_output_tokens"),
        ({"incomplete_details": None}, None),
    ],
)
def test_the_reason_to_stop_is_in_the_dialect_s_words(response: Any, reason: str | None) -> None:
    assert build(_line(response=response), 0).finish_reason == reason


def test_tokens_follow_the_rule_of_the_stored_dialect() -> None:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 100, "output_tokens": 1}

    as_messages = build(_line(dialect="messages", response={"usage": usage}), 0)
    as_responses = build(_line(dialect="responses", response={"usage": usage}), 0)

    assert (as_messages.tokens_in, as_messages.cached_tokens) == (105, 100)
    assert as_responses.tokens_in == 5


def test_arguments_that_were_cut_are_given_as_the_text_that_came() -> None:
    content = [
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "t2", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "name": "f", "input": {}},
    ]
    notes = {"tool_arguments_incomplete": {"t1": '{"a": 1, "b'}}

    record = build(_line(dialect="messages", response={"content": content}, notes=notes), 0)

    assert [call["arguments"] for call in record.tool_calls] == [
        {"_raw": '{"a": 1, "b'},
        {"a": 1},
        {},
    ]


def test_the_model_server_is_a_typed_reference() -> None:
    assert build(_LINE, 0).model_ref == ModelServerRef(name="policy_model")


def test_a_time_beyond_all_numbers_is_not_known() -> None:
    record = build({"latency_ms": 10**400, "started_at": 7, "completed_at": True}, 0)

    assert (record.latency_total_ms, record.started_at, record.completed_at) == (None, 7.0, None)
