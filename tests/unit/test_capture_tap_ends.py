"""Whatever ends a call, and whichever way its pieces took: what was there is told, once."""

import gzip

import pytest

from nemo_gym.capture.error_category import error_category
from nemo_gym.capture.tap import ExchangeTap, Phase, Request, Verdict
from nemo_gym.capture.watch import CallWatch
from nemo_gym.wire.dialects import CHAT
from support.sse import DONE, chunk
from support.taps import JSON, SSE, Led

SEND, COMMIT = Verdict.SEND, Verdict.COMMIT
HELLO, THERE = chunk({"content": "hello"}), chunk({"content": " there"})


def _length(n: int) -> tuple[bytes, bytes]:
    return b"content-length", str(n).encode()


@pytest.mark.parametrize("content", [b"a" * 999, bytes(range(256))], ids=["shrinks", "grows"])
def test_a_declared_length_counts_the_bytes_as_they_are_sent(content: bytes) -> None:
    body = gzip.compress(content)
    led = Led()
    led.start([*JSON, (b"content-encoding", b"gzip"), _length(len(body))])

    verdicts = led.send_all([body[:15], body[15:-1], body[-1:]])

    assert verdicts == [SEND, SEND, COMMIT]
    assert led.end().response.data == content


def test_every_chunk_of_a_stream_counts_towards_a_declared_length() -> None:
    led = Led()
    led.start([*SSE, _length(4 * len(HELLO))])

    assert led.send_all([HELLO] * 4) == [SEND, SEND, SEND, COMMIT]


@pytest.mark.parametrize(
    "header",
    [(b"Content-Length", b"0"), (b"content-length", b" 0\t"), (b"CONTENT-LENGTH", b"00")],
)
def test_an_empty_body_is_known_however_its_length_is_written(header: tuple[bytes, bytes]) -> None:
    assert Led().start([header]) is COMMIT


@pytest.mark.parametrize(
    "header",
    [
        (b"Content-Type", b"text/event-stream"),
        (b"content-type", b"Text/Event-Stream"),
        (b"content-type", b" text/event-stream ; charset=utf-8"),
    ],
)
def test_a_stream_is_known_however_its_type_is_written(header: tuple[bytes, bytes]) -> None:
    led = Led()
    led.start([header])

    # A field that no standard knows: the first bytes do not tell that these are events.
    assert led.send_all([b"x-field: 1\n", DONE]) == [SEND, COMMIT]


@pytest.mark.parametrize("how", ["client gone", "raised", "given up"])
def test_a_chunk_that_passed_by_is_kept_however_the_call_ends(how: str) -> None:
    led = Led()
    led.start(SSE)
    led.send(HELLO)
    passes = led.tap.passes_by
    assert passes is not None
    assert passes(THERE)
    if how == "client gone":
        led.tap.client_gone(led.now)

    tapped = led.end(raised=how == "raised")

    assert tapped.response.data == HELLO + THERE
    assert "hello there" in str(tapped.stream)


def test_the_phase_is_that_of_the_moment_in_which_the_client_left() -> None:
    led = Led()
    led.start(SSE)
    led.tap.client_gone(led.now)
    led.send(HELLO)
    led.tap.client_gone(led.now)

    assert led.end().phase is Phase.BEFORE_DATA


@pytest.mark.parametrize(
    ("last", "more"), [(DONE, True), (b"", False)], ids=["terminal-event", "last-message"]
)
def test_a_client_that_left_in_mid_stream_has_left_even_where_the_application_goes_on(
    last: bytes, more: bool
) -> None:
    led = Led()
    led.start(SSE)
    led.send(HELLO)
    led.tap.client_gone(led.now)

    assert led.send(last, more=more) is COMMIT
    assert led.end().phase is Phase.MID_STREAM
    assert error_category(led.end(), None, None) == "cancelled"


@pytest.mark.parametrize("watch", [ExchangeTap, CallWatch])
def test_what_happens_between_the_end_and_the_row_has_not_failed_the_call(
    watch: type[ExchangeTap | CallWatch],
) -> None:
    tap = watch(Request(CHAT, "POST"), started_at=0.0, now=0.0)
    tap.response_start(200, SSE, 1.0)
    assert tap.response_body(DONE, True, 2.0) is COMMIT
    tap.client_gone(3.0)

    tapped = tap.finish(4.0, raised=True)

    assert (tapped.phase, tapped.raised) == (None, False)


def test_after_a_call_was_given_up_on_nothing_is_held() -> None:
    led = Led()
    led.start(SSE)
    led.send(HELLO)
    given_up = led.end()

    assert led.send_all([THERE, DONE]) == [SEND, SEND]
    assert led.send(b"", more=False) is SEND
    assert given_up.response.data == HELLO
