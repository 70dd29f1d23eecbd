"""Messages of one call as they pass, in; when to hold one, and later the whole call, out. Pure.

Most calls are one request body, one response head and one response body that says it is the last:
what to hold is plain then, and all else can wait for the store's thread, which looks at many calls
in a row for half of what it costs between two messages. So these messages are only kept, and an
`ExchangeTap` sees them when the row is made. The first message of any other shape brings it in at
once; verdicts and the call that comes out are those of a tap that saw every message as it passed.

What `passes` says, verdicts, times and the order of calls are as in `capture.tap`.
"""

from collections.abc import Callable

from nemo_gym.capture.plain_line import PlainCall
from nemo_gym.capture.tap import (
    ASKED_OF_REQUESTS,
    DEFAULT_BODY_LIMIT,
    ExchangeTap,
    Headers,
    Request,
    Tapped,
    Verdict,
)

__all__ = ["CallWatch"]

_SEND, _COMMIT = Verdict.SEND, Verdict.COMMIT
_TYPE = b"content-type"
_ABOUT_CONTENT = frozenset({_TYPE, b"content-encoding"})
_LENGTHS_ABOUT_CONTENT = frozenset(map(len, _ABOUT_CONTENT))
_JSON = b"application/json"
_Body = bytes | bytearray | memoryview
# How a header begins that may be the length of an empty body. Names are looked at only there:
# providers send many headers, and that of the length is one among them.
_OF_NOTHING = b"0 \t\r\n\v\f"


def _none_passes(_body: _Body) -> bool:
    return False


def _has_body(headers: Headers) -> bool:
    """Say whether a response surely has a body, so that its head need not be held."""
    for name, value in headers:
        if value[:1] in _OF_NOTHING and name.lower() == b"content-length":
            return False
    return True


class CallWatch:
    """Watches one call. `body_limit`: most bytes kept of each body, after decompression."""

    __slots__ = (
        "_began",
        "_end",
        "_limit",
        "_request",
        "_request_bodies",
        "_start",
        "_started_at",
        "_tap",
        "passes",
    )

    passes: Callable[[_Body], bool]
    """Takes a body message with more to come, if it is one of the many in a stream under way.

    True is a short way to the verdict ``SEND``; False: not taken, `response_body` has to."""

    def __init__(
        self,
        request: Request,
        *,
        started_at: float,
        now: float,
        body_limit: int = DEFAULT_BODY_LIMIT,
    ) -> None:
        self._request = request
        self._started_at = started_at
        self._began = now
        self._limit = body_limit
        self._request_bodies: list[bytes] = []
        self._start: tuple[int, Headers, float] | None = None
        self._end: tuple[bytes, float] | None = None
        """The one message of the response body."""
        self._tap: ExchangeTap | None = None
        self.passes = _none_passes

    def request_body(self, chunk: _Body) -> None:
        """Take body bytes of the request."""
        if self._tap is not None:
            self._tap.request_body(chunk)
        elif self._end is None:
            self._request_bodies.append(chunk if isinstance(chunk, bytes) else bytes(chunk))

    @property
    def has_begun(self) -> bool:
        """Whether the head of the response has come."""
        return self._start is not None or (self._tap is not None and self._tap.has_begun)

    def response_start(
        self, status: int, headers: Headers, now: float, *, body_follows: bool = False
    ) -> Verdict:
        """Take the head of the response.

        `body_follows`: no client gets it before the verdict on the next body message is known,
        and that may then be on both.
        """
        if (
            self._tap is None
            and self._start is None
            and (status == 200 and self._request.method == "POST")
            and (body_follows or _has_body(headers))
        ):
            self._start = (status, headers, now)
            return _SEND
        return self._whole_tap().response_start(status, headers, now)

    def response_body(self, body: _Body, more_body: bool, now: float) -> Verdict:
        """Take a body message of the response, as the application sends it."""
        if self._tap is None and not more_body and self._start is not None:
            if self._end is not None:
                return _SEND
            self._end = (body if isinstance(body, bytes) else bytes(body), now)
            return _COMMIT
        looks_now, tap = self._tap is None, self._whole_tap()
        if looks_now and tap.committed and self._end is None:
            return _COMMIT  # the head was the end, and waits for this message
        verdict = tap.response_body(body, more_body, now)
        self.passes = tap.passes_by or _none_passes
        return verdict

    def client_gone(self, now: float) -> None:
        """Say that the client went away. Without effect once the row has all it will have."""
        if self._end is None:
            self._whole_tap().client_gone(now)

    def plain_call(self, now: float) -> PlainCall | None:
        """Return the call if it is of the commonest kind, which needs no tap to be told.

        `now`: when it ended, as for `finish`.
        """
        if self._tap is not None or self._start is None or self._end is None:
            return None
        (_, headers, _), (body, ended_at) = self._start, self._end
        bodies, call, limit = self._request_bodies, self._request, self._limit
        sent = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        if body[:1] != b"{" or len(sent) > limit or len(body) > limit:
            return None
        for name, _ in call.headers:
            if name in ASKED_OF_REQUESTS:
                return None
        for name, value in headers:
            # A name is as long as two that matter, or is neither: few are put in lower case.
            if len(name) in _LENGTHS_ABOUT_CONTENT:
                about = name.lower()
                if about in _ABOUT_CONTENT and (about != _TYPE or not value.startswith(_JSON)):
                    return None
        began = self._began
        took_ms, ttft_ms = (now - began) * 1000, (ended_at - began) * 1000
        return PlainCall(call.dialect, self._started_at, took_ms, ttft_ms, sent, body)

    def finish(self, now: float, *, raised: bool = False) -> Tapped:
        """Return the call, once. `raised`: the application ended with an exception."""
        return self._whole_tap().finish(now, raised=raised)

    def _whole_tap(self) -> ExchangeTap:
        """Return the tap, which has seen all that came so far."""
        tap = self._tap
        if tap is None:
            tap = self._tap = ExchangeTap(
                self._request,
                started_at=self._started_at,
                now=self._began,
                body_limit=self._limit,
            )
            for body in self._request_bodies:
                tap.request_body(body)
            if self._start is not None:
                tap.response_start(*self._start)
            if self._end is not None:
                tap.response_body(self._end[0], False, self._end[1])
        return tap
