"""A model call as its forwarder times it: what is kept of an answer, how long, and what is said."""

import gc
import sys
import weakref

import pytest

from nemo_gym.errors import ConnectionLost
from nemo_gym.servers.forward_timing import CallTiming, timed_call
from nemo_gym.telemetry.live import live_counts
from nemo_gym.telemetry.tracing import span
from nemo_gym.transport.base import RawHeaders
from nemo_gym.transport.fake import FakeReply
from support.spans import by_name, tracing_on

JSON: RawHeaders = [(b"content-type", b"application/json")]
EVENTS: RawHeaders = [(b"content-type", b"text/event-stream")]
USAGE = b'"usage":{"prompt_tokens":3,"completion_tokens":2}}'


def chat() -> CallTiming:
    return timed_call("chat", ("openai", "m"))


def answer_of(size: int) -> bytes:
    """Return an answer of so many bytes that no other test holds."""
    return b'{"text":"' + b"x" * (size - len(USAGE) - 11) + b'",' + USAGE


def tokens() -> tuple[int, int, int]:
    live = live_counts()
    return live.model_calls, live.tokens_in, live.tokens_out


@pytest.mark.parametrize(("size", "kept"), [(8192, True), (8193, False)])
def test_a_large_answer_is_looked_into_at_once_and_let_go(size: int, kept: bool) -> None:
    before, body = tokens(), answer_of(size)
    held = sys.getrefcount(body)

    call = chat()
    call.answered_by(FakeReply(200, JSON), body)

    assert (len(body), sys.getrefcount(body) > held) == (size, kept)
    assert tuple(now - was for now, was in zip(tokens(), before, strict=True)) == (1, 3, 2)
    assert call.over


def test_a_small_answer_is_let_go_with_its_call_once_it_is_counted() -> None:
    body, call = answer_of(100), chat()
    call.answered_by(FakeReply(200, JSON), body)
    ended = weakref.ref(call)

    gc.disable()
    try:
        del call
        assert ended() is not None
        live_counts()
        assert ended() is None
    finally:
        gc.enable()


def test_an_answer_in_a_trace_is_looked_into_before_its_span_ends() -> None:
    body = answer_of(100)
    held = sys.getrefcount(body)

    with tracing_on() as on, span("rollout", root=True):
        call = chat()
        call.answered_by(FakeReply(200, JSON), body)

    ended = by_name(on)["chat m"]
    assert sys.getrefcount(body) == held
    assert (ended.error, ended.attributes["http.response.status_code"]) == (None, 200)
    assert ended.attributes["gen_ai.request.stream"] is False
    assert ended.attributes["gen_ai.usage.input_tokens"] == 3
    assert ended.attributes["gen_ai.usage.output_tokens"] == 2


def test_of_a_stream_that_breaks_off_nothing_is_kept() -> None:
    begun = b"data: " + b"x" * 5000
    held = sys.getrefcount(begun)

    call = chat()
    call.answered_by(FakeReply(200, EVENTS, [b"more"]), begun)
    within = sys.getrefcount(begun)
    call.broken_off(ConnectionLost)

    assert within > held
    assert sys.getrefcount(begun) == held


def test_a_call_that_has_ended_does_not_break_off() -> None:
    before = live_counts().model_errors

    call = chat()
    call.answered_by(FakeReply(200, JSON), answer_of(100))
    call.broken_off(ConnectionLost)

    assert live_counts().model_errors == before


def test_an_error_status_is_the_error_of_its_span_and_stays_it_when_the_answer_breaks() -> None:
    with tracing_on() as on, span("rollout", root=True):
        call = chat()
        call.answered_by(FakeReply(429, JSON, [b"more"]), b"{}")
        call.broken_off(ConnectionLost)

    ended = by_name(on)["chat m"]
    assert (ended.error, ended.attributes["http.response.status_code"]) == ("rate_limit", 429)
