"""A watch that looks later says and yields what a tap does that sees each message as it passes."""

from collections.abc import Callable
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from nemo_gym.capture.tap import ExchangeTap, Headers, Request, Tapped, Verdict
from nemo_gym.capture.watch import CallWatch
from nemo_gym.wire.dialects import CHAT, DIALECTS
from support.taps import JSON, SSE

Step = tuple[str, tuple[Any, ...]]
_BODIES = st.sampled_from(
    [
        b"",
        b"{}",
        b'{"a": 1}',
        b"x",
        b" \r\n",
        b"[1,2]",
        b"data: [DONE]\n\n",
        b'data: {"id":"c","choices":[]}\n\n',
        bytearray(b'{"a"'),
        memoryview(b": 1}"),
    ]
)
_LENGTHS = st.sampled_from(
    [[], *([(b"content-length", n)] for n in (b"0", b"2", b"8", b"0000", b"  0"))]
)
_KINDS: st.SearchStrategy[Headers] = st.sampled_from(
    [
        JSON,
        SSE,
        [],
        [(b"content-encoding", b"gzip")],
        [(b"Content-Encoding", b"gzip")],
        [(b"Content-Length", b"0")],
        [(b"Content-Type", b"application/json; charset=utf-8")],
        [(b"content-encoding", b"application/json")],
        [(b"x-ratelimit-remaining-requests", b"0"), (b"x-queue", b"")],
    ]
)
_STEPS = st.one_of(
    st.tuples(st.just("request"), st.tuples(_BODIES)),
    st.tuples(
        st.just("start"),
        st.tuples(
            st.sampled_from([200, 200, 200, 204, 304, 101, 429, 503]),
            st.builds(lambda a, b: [*a, *b], _KINDS, _LENGTHS),
        ),
    ),
    st.tuples(st.just("body"), st.tuples(_BODIES, st.booleans())),
    st.tuples(st.just("gone"), st.just(())),
)


POST: tuple[str, Headers] = ("POST", [])
NAMED: tuple[str, Headers] = ("POST", [(b"x-session-id", b"s")])


def _led(watch: ExchangeTap | CallWatch, steps: list[Step], raised: bool) -> tuple[Any, ...]:
    """Return the verdicts, and the call; messages after its end are not looked at."""
    verdicts: list[Verdict | None] = []
    now = 1.0
    for kind, given_ in steps:
        now += 0.25
        if kind == "request":
            watch.request_body(*given_)
        elif kind == "gone":
            watch.client_gone(now)
        elif kind == "start":
            status, headers = given_
            verdicts.append(watch.response_start(status, headers, now))
        else:
            body, more = given_
            passes = watch.passes if isinstance(watch, CallWatch) else watch.passes_by
            passed = more and passes is not None and passes(body)
            verdicts.append(Verdict.SEND if passed else watch.response_body(body, more, now))
    tapped: Tapped = watch.finish(now, raised=raised)
    return verdicts, tapped


@st.composite
def _plain_calls(draw: st.DrawFn) -> list[Step]:
    """What most calls are: a request, a head, and one last message of the body."""
    steps: list[Step] = [("request", (draw(_BODIES),)) for _ in range(draw(st.integers(0, 2)))]
    steps.append(("start", (200, [*draw(_KINDS), *draw(_LENGTHS)])))
    steps.append(("body", (draw(_BODIES), False)))
    return steps


@given(
    st.sampled_from(DIALECTS),
    st.tuples(
        st.sampled_from(["POST", "POST", "HEAD", "GET"]),
        # The last is what the plainest of calls has not.
        st.sampled_from([[], JSON, [(b"x-session-id", b"s")]]),
    ),
    st.one_of(_plain_calls(), st.lists(_STEPS, max_size=8)),
    st.booleans(),
    st.sampled_from([4, 10**9]),
)
@example(CHAT, POST, [("start", (200, JSON)), ("body", (b"[1,2]", False))], False, 4)
@example(CHAT, POST, [("start", (200, JSON)), ("body", (b" \r\n", False))], False, 10**9)
@example(CHAT, POST, [("start", (200, JSON)), ("body", (b"data: 1\n\n", False))], False, 10**9)
@example(CHAT, NAMED, [("start", (200, JSON)), ("body", (b"{}", False))], False, 10**9)
@example(CHAT, POST, [("start", (200, [(b"Content-Encoding", b"gzip")])), ("body", (b"x", False))],
         False, 10**9)  # fmt: skip
@example(CHAT, POST, [("request", (b"{}",)), ("start", (200, JSON)), ("body", (b"{}", False))],
         False, 10**9)  # fmt: skip
@example(CHAT, POST, [("start", (200, [(b"content-length", b"0000")])), ("body", (b"", False))],
         False, 10**9)  # fmt: skip
@example(CHAT, POST, [("start", (200, [(b"content-length", b"  0")])), ("body", (b"", False))],
         False, 10**9)  # fmt: skip
@example(CHAT, POST, [("start", (200, [(b"content-length", b"0")])), ("body", (b"", False))],
         False, 10**9)  # fmt: skip
@example(CHAT, POST, [("start", (200, SSE)), ("body", (b"", False))], False, 10**9)
@example(CHAT, POST, [("start", (200, [(b"content-encoding", b"gzip")])), ("body", (b"x", False))],
         False, 10**9)  # fmt: skip
def test_a_watch_is_a_tap_that_looks_later(
    dialect: Any, asked: tuple[str, Headers], steps: list[Step], raised: bool, limit: int
) -> None:
    def made(kind: Callable[..., Any]) -> Any:
        request = Request(dialect, *asked)
        return kind(request, started_at=5.0, now=1.0, body_limit=limit)

    watched, tapped = _led(made(CallWatch), steps, raised), _led(made(ExchangeTap), steps, raised)

    assert watched == tapped


def test_chunks_of_a_stream_under_way_take_the_short_way() -> None:
    watch = CallWatch(Request(CHAT, "POST"), started_at=5.0, now=1.0)
    chunk = b'data: {"id":"c","choices":[]}\n\n'
    watch.response_start(200, SSE, 1.0)

    assert not watch.passes(chunk)
    assert watch.response_body(chunk, True, 1.0) is Verdict.SEND
    assert watch.passes(chunk)


@given(st.lists(_STEPS, max_size=4), st.integers(1, 3))
def test_what_comes_after_the_last_body_message_is_not_looked_at(
    later: list[Step], bodies: int
) -> None:
    whole: list[Step] = [("request", (b"{}",))] * bodies
    whole += [("start", (200, JSON)), ("body", (b'{"a": 1}', False))]
    plain, more = (CallWatch(Request(CHAT, "POST"), started_at=5.0, now=1.0) for _ in range(2))

    verdicts, ended = _led(more, whole + later, raised=False)

    assert verdicts[1] is Verdict.COMMIT
    assert set(verdicts[2:]) <= {Verdict.SEND}
    first = _led(plain, whole, raised=False)[1]
    assert ended._replace(latency_ms=0) == first._replace(latency_ms=0)
