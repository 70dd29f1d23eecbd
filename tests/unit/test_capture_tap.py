"""The tap holds what would let a client finish, and nothing else."""

import gzip
from typing import Any

import pytest

from nemo_gym.capture.tap import Phase, Verdict
from nemo_gym.wire.dialects import CHAT, MESSAGES, RESPONSES, Dialect
from support.reassembly import bytewise
from support.sse import DONE, chunk, event, message_start, typed
from support.taps import JSON, SSE, Led

SEND, HOLD, COMMIT = Verdict.SEND, Verdict.HOLD, Verdict.COMMIT
HOLD_BRIEFLY = Verdict.HOLD_BRIEFLY


def _length(n: int) -> list[tuple[bytes, bytes]]:
    return [*JSON, (b"content-length", str(n).encode())]


def test_the_message_that_completes_the_declared_length_commits() -> None:
    led = Led()

    assert led.start(_length(4)) is SEND
    assert [led.send(b"ab"), led.send(b""), led.send(b"cd"), led.send(b"", more=False)] == [
        SEND,
        SEND,
        COMMIT,
        SEND,
    ]
    assert led.end().response.data == b"abcd"


def test_a_length_that_is_exceeded_or_no_number_is_no_trouble() -> None:
    led, odd = Led(), Led()
    led.start(_length(1))
    odd.start([*JSON, (b"content-length", b"many")])

    assert led.send(b"{}") is COMMIT
    assert [odd.send(b"{}"), odd.send(b"", more=False)] == [SEND, COMMIT]


def test_without_a_length_the_last_message_commits() -> None:
    led = Led()
    led.start(JSON)

    assert [led.send(b"{"), led.send(b"}", more=False)] == [SEND, COMMIT]


@pytest.mark.parametrize(
    ("method", "status", "headers"),
    [
        ("HEAD", 200, _length(7)),
        ("POST", 103, []),
        ("POST", 204, []),
        ("POST", 304, []),
        ("POST", 502, _length(0)),
    ],
)
def test_a_response_without_a_body_commits_with_its_head(
    method: str, status: int, headers: list[tuple[bytes, bytes]]
) -> None:
    led = Led(method=method)

    assert led.start(headers, status) is COMMIT
    assert led.send(b"", more=False) is SEND
    tapped = led.end()
    assert (tapped.status, tapped.bodiless, tapped.response.data) == (status, True, b"")


@pytest.mark.parametrize(
    ("dialect", "body", "last_line"),
    [
        (CHAT, chunk({"content": "a"}), b"data: [DONE]\n"),
        (MESSAGES, message_start(), b"event: message_stop\n"),
        (
            RESPONSES,
            typed("response.created", response={"id": "r"}),
            b'data: {"type":"response.completed","response":{"id":"r"}}\n',
        ),
    ],
    ids=["chat", "messages", "responses"],
)
def test_a_stream_commits_with_the_line_of_its_terminal_event(
    dialect: Dialect, body: bytes, last_line: bytes
) -> None:
    for end in (last_line, last_line[:-1] + b"\r", last_line + b"\n: after\n\n"):
        led = Led(dialect)
        led.start(SSE)

        assert led.send(body) is SEND
        assert led.send(end) is COMMIT
        assert led.send(b"\n", more=False) is SEND
        tapped = led.end()
        assert tapped.response.data == body + end
        assert tapped.stream is not None
        assert tapped.stream.terminal is not None


def test_a_stream_one_byte_at_a_time_commits_with_the_same_byte() -> None:
    body = chunk({"content": "a"}) + DONE
    led = Led()
    led.start(SSE)

    verdicts = led.send_all(bytewise(body))

    assert verdicts == [SEND] * (len(body) - 2) + [COMMIT, SEND]


def test_a_name_whose_data_is_still_coming_is_held_until_the_data_came() -> None:
    led = Led(RESPONSES)
    led.start(SSE)

    verdicts = led.send_all(
        [b"event: response.completed\n", b'data: {"response":{"id"', b':"r"}}', b"\n", b"\n"]
    )

    assert verdicts == [HOLD, HOLD, HOLD, COMMIT, SEND]
    assert led.end().stream is not None


def test_an_error_event_is_held_as_well() -> None:
    chat, responses = Led(CHAT), Led(RESPONSES)
    chat.start(SSE)
    responses.start(SSE)

    assert chat.send(event({"error": {"message": "x"}})) is COMMIT
    assert responses.send(typed("error", message="x")) is HOLD_BRIEFLY
    assert responses.send(b": still held\n\n") is HOLD_BRIEFLY
    assert responses.send(typed("response.in_progress")) is SEND
    assert responses.send(typed("error", message="y")) is HOLD_BRIEFLY
    assert responses.send(b"event: response.failed\n") is HOLD
    assert responses.send(typed("response.failed", response={"id": "r"})) is COMMIT


def test_a_stream_with_a_declared_length_commits_with_whichever_comes_first() -> None:
    body = chunk({"content": "a"}) + DONE
    led = Led()
    led.start([*SSE, (b"content-length", str(len(body) - 5).encode())])

    assert led.send(body[:-5]) is COMMIT


def test_what_comes_after_the_commit_is_not_recorded() -> None:
    led = Led()
    led.start(SSE)
    led.send(DONE)

    led.tap.request_body(b"late")
    led.tap.client_gone(led.now)
    assert led.start(JSON, 500) is SEND
    tapped = led.end()
    assert (tapped.status, tapped.request.data, tapped.phase) == (200, b"", None)


def test_bytes_of_any_kind_are_taken() -> None:
    led = Led()
    led.tap.request_body(bytearray(b"{}"))
    led.start(JSON)

    assert led.tap.response_body(memoryview(b'{"a":1}'), False, led.now) is COMMIT
    tapped = led.end()
    assert (tapped.request.data, tapped.response.data) == (b"{}", b'{"a":1}')


def test_body_before_a_head_passes() -> None:
    assert Led().send(b"x", more=False) is SEND


@pytest.mark.parametrize(
    ("headers", "body", "is_stream"),
    [
        ([], chunk({"content": "a"}), True),
        ([(b"content-type", b"text/plain")], b": hi\n\n" + chunk({}), True),
        ([], b'{"error": {"message": "no"}}', False),
        ([(b"Content-Type", b"application/problem+json")], b"data: 1\n\n", True),
        ([], b"dat", False),
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_a_response_that_does_not_say_what_it_is_is_known_by_its_first_bytes(
    headers: list[tuple[bytes, bytes]], body: bytes, is_stream: bool, size: int
) -> None:
    led = Led()
    led.start(headers)
    led.send_all([body[i : i + size] for i in range(0, len(body), size)])
    led.send(b"", more=False)

    tapped = led.end()
    assert (tapped.stream is not None) is is_stream
    assert tapped.response.data == body


def test_times_run_from_receipt_of_the_request() -> None:
    led = Led()
    led.start(SSE)
    led.send(b": ping\n\n")
    led.send(chunk({"content": "a"}))
    led.send(DONE)

    tapped = led.end()
    assert tapped.latency_ttft_ms == pytest.approx(300)
    assert tapped.latency_ms == pytest.approx(400)
    assert tapped.started_at == 1.5e9


def test_whitespace_that_keeps_a_connection_alive_is_no_data() -> None:
    led = Led()
    led.start(JSON)
    led.send(b"\n")
    led.send(b" \n")
    led.send(b'{"a":')
    led.send(b"1}", more=False)

    assert led.end().latency_ttft_ms == pytest.approx(400)


def test_a_response_without_data_has_no_time_to_first_data() -> None:
    led = Led()
    led.start(JSON)
    led.send(b"", more=False)

    assert led.end().latency_ttft_ms is None


def _gone(led: Led) -> Phase | None:
    led.tap.client_gone(led.now)
    led.tap.client_gone(led.now)
    return led.end().phase


def test_the_phase_of_a_stream_that_a_client_leaves_is_told() -> None:
    before = Led()
    head = Led()
    head.start(SSE)
    comment = Led()
    comment.start(SSE)
    comment.send(b": ping\n\n")
    middle = Led()
    middle.start(SSE)
    middle.send(chunk({"content": "a"}))
    end = Led()
    end.start(SSE)
    end.send(chunk({"content": "a"}, finish="stop"))

    assert [_gone(led) for led in (before, head, comment, middle, end)] == [
        Phase.BEFORE_HEADERS,
        Phase.BEFORE_DATA,
        Phase.BEFORE_DATA,
        Phase.MID_STREAM,
        Phase.BEFORE_TERMINAL,
    ]


def test_the_phase_of_a_body_that_a_client_leaves_is_told() -> None:
    head, middle = Led(), Led()
    head.start(JSON)
    middle.start(JSON)
    middle.send(b'{"a"')

    assert (_gone(head), _gone(middle)) == (Phase.BEFORE_DATA, Phase.MID_STREAM)
    assert middle.end().response.data == b'{"a"'


def test_an_application_that_raises_before_the_end_is_told() -> None:
    led, late = Led(), Led()
    led.start(SSE)
    late.start(SSE)
    late.send(DONE)

    assert led.end(raised=True).raised
    assert not late.end(raised=True).raised


def test_a_compressed_stream_commits_when_its_last_line_can_be_read() -> None:
    body = gzip.compress(chunk({"content": "a"}) + DONE)
    led = Led(headers=[(b"content-encoding", b"gzip")])
    led.tap.request_body(gzip.compress(b'{"a":1}'))
    led.start([*SSE, (b"content-encoding", b"gzip")])

    verdicts = led.send_all(bytewise(body))

    assert verdicts.count(COMMIT) == 1
    tapped = led.end()
    response: Any = tapped.stream and tapped.stream.response
    assert response["choices"][0]["message"]["content"] == "a"
    assert tapped.request.data == b'{"a":1}'


@pytest.mark.parametrize(
    ("name", "is_an_id"),
    [
        *[(b"session_id", True), (b"x-opencode-request", True)],
        *[(b"authorization", False), (b"content-encoding", False)],
    ],
)
def test_whether_the_client_sent_ids_of_its_own_is_told_and_no_header_is_shown(
    name: bytes, is_an_id: bool
) -> None:
    tapped = Led(headers=[(name, b"key-of-mine")]).end()

    assert tapped.has_client_ids is is_an_id
    assert "key-of-mine" not in repr(tapped)


@pytest.mark.parametrize("media", [b"application/json", b"application/problem+json", b"text/plain"])
def test_a_stream_that_is_called_something_else_is_one(media: bytes) -> None:
    led = Led()
    led.start([(b"content-type", media)])

    verdicts = led.send_all([b"da", b"ta: {}\n\n", b"data: [DONE]\n\n"])

    assert verdicts == [SEND, SEND, COMMIT]
    assert led.end().stream is not None


def test_the_end_of_a_stream_is_seen_beyond_the_limit_whatever_it_is_called() -> None:
    led = Led(limit=20)
    led.start([])

    verdicts = led.send_all([b"data: {}\n\n" * 9 + b"data: [D", b"ONE]\n\n"])

    assert verdicts == [SEND, COMMIT]
    assert led.end().response.truncated_at == 20
