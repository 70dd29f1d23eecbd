"""Errors leave in the shape that the client's SDK expects."""

import json

import pytest

from nemo_gym.wire.dialects import (
    CHAT,
    DIALECTS,
    MESSAGES,
    RESPONSES,
    Dialect,
    dialect_named,
    dialect_of_route,
    error_body,
    error_event,
)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)
def test_a_dialect_is_found_by_its_route_and_by_its_name(dialect: Dialect) -> None:
    assert dialect_of_route(dialect.route) is dialect
    assert dialect_of_route(dialect.route + b"?beta=true") is dialect
    assert dialect_named(dialect.name) is dialect


@pytest.mark.parametrize(
    "path",
    [b"/v1/messages/count_tokens", b"/v1/models", b"/v1/v1/responses", b"/v1/responses/", b""],
)
def test_side_routes_belong_to_no_dialect(path: bytes) -> None:
    assert dialect_of_route(path) is None


@pytest.mark.parametrize("dialect", [CHAT, RESPONSES], ids=lambda d: d.name)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (429, "rate_limit_error"),
        (502, "server_error"),
    ],
)
def test_openai_errors_name_message_type_param_and_code(
    dialect: Dialect, status: int, kind: str
) -> None:
    body = json.loads(error_body(dialect, status, "it broke", "broken"))

    assert body == {"error": {"message": "it broke", "type": kind, "param": None, "code": "broken"}}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (413, "request_too_large"),
        (418, "invalid_request_error"),
        (500, "api_error"),
        (502, "api_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_messages_errors_carry_the_documented_type_of_the_status(status: int, kind: str) -> None:
    body = json.loads(error_body(MESSAGES, status, "it broke"))

    assert body == {"type": "error", "error": {"type": kind, "message": "it broke"}}


def test_an_error_inside_a_chat_stream_is_an_unnamed_event_with_the_error_body() -> None:
    event = error_event(CHAT, 502, "gone")

    assert event.startswith(b"data: {")
    assert event.endswith(b"}\n\n")
    assert json.loads(event[6:])["error"]["message"] == "gone"


def test_an_error_inside_a_responses_stream_is_a_numbered_error_event() -> None:
    name, data = error_event(RESPONSES, 502, "gone", sequence_number=7).split(b"\n")[:2]

    assert name == b"event: error"
    assert json.loads(data[6:]) == {
        "type": "error",
        "code": "502",
        "message": "gone",
        "param": None,
        "sequence_number": 7,
    }


def test_an_error_inside_a_messages_stream_is_a_named_error_event() -> None:
    name, data = error_event(MESSAGES, 529, "busy").split(b"\n")[:2]

    assert name == b"event: error"
    assert json.loads(data[6:]) == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "busy"},
    }


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)
def test_a_message_with_newlines_stays_one_event(dialect: Dialect) -> None:
    event = error_event(dialect, 500, "a\n\nb\r\nc")

    assert event.count(b"\n\n") == 1
    assert b"\r" not in event
