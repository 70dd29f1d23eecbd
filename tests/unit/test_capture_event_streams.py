"""What is called an event stream and holds nothing, or is none."""

import json
from typing import Any

import pytest

from nemo_gym.capture.exchange import exchange_line
from nemo_gym.wire.dialects import CHAT, MESSAGES, RESPONSES
from nemo_gym.wire.stream import looks_like_events
from support.sse import typed
from support.taps import SSE, Led

ERROR = b'{"error": {"message": "slow down"}}'


def _stored(body: bytes, status: int, size: int, *, ends: bool = True) -> dict[str, Any]:
    led = Led(CHAT)
    led.start(SSE, status)
    led.send_all([body[i : i + size] for i in range(0, len(body), size)])
    if ends:
        led.send(b"", more=False)
    line = exchange_line(led.end(), None, model_call_id="id", model_ref_name="m")
    stored: dict[str, Any] = json.loads(line)
    return stored


@pytest.mark.parametrize(
    "body", [b"", b"\n", b": hi\n\n", b'event: ping\ndata: {"type":"ping"}\n\n']
)
@pytest.mark.parametrize("ends", [True, False], ids=["ends", "cut"])
def test_a_stream_from_which_nothing_came_is_not_one_that_nests_too_deeply(
    body: bytes, ends: bool
) -> None:
    stored = _stored(body, 200, 1000, ends=ends)

    assert stored["response"] is None
    assert "nested_too_deeply" not in stored.get("notes", {})
    assert stored["error_category"] == (
        "stream_truncated" if body or ends else "capture_parse_error"
    )


@pytest.mark.parametrize(
    ("status", "body", "category"),
    [
        (429, ERROR, "rate_limit"),
        (200, b'\xef\xbb\xbf\r\n {"id": "x"}', None),
        (200, ERROR, "upstream_error"),
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_a_json_object_that_is_called_a_stream_is_a_json_object(
    status: int, body: bytes, category: str | None, size: int
) -> None:
    stored = _stored(body, status, size)

    assert stored["response"] == json.loads(body.decode("utf-8-sig"))
    assert stored["error_category"] == category


@pytest.mark.parametrize("head", [b"data: {", b"x", b"<html>", b" data", b"\xef\xbb\xbf:"])
def test_everything_else_that_is_called_a_stream_is_one(head: bytes) -> None:
    assert looks_like_events(head, last=False, said=True) is True


@pytest.mark.parametrize("head", [b"", b"\xef\xbb", b"\xef\xbb\xbf", b"\r\n", b" \n"])
def test_blank_lines_and_a_mark_tell_nothing_of_what_is_called_a_stream(head: bytes) -> None:
    assert looks_like_events(head, last=False, said=True) is None
    assert looks_like_events(head, last=True, said=True) is True


@pytest.mark.parametrize("dialect", [CHAT, MESSAGES, RESPONSES], ids=lambda d: d.name)
def test_a_stream_whose_first_chunk_is_blank_is_read_from_the_next(dialect: Any) -> None:
    led = Led(dialect)
    led.start(SSE)
    led.send_all([b"\n", b"\n", typed("message_start", message={"id": "m"})])

    stream = led.end().stream
    assert stream is not None
    assert (stream.response is not None) is (dialect is MESSAGES)
