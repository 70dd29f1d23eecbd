"""The facts of one model call as they pass, in; when to hold a message, and the whole call, out.

Pure: bytes, headers and times are handed in, nothing is sent, nothing is awaited. The shell calls,
in the order in which things happen::

    tap = ExchangeTap(Request(dialect, method, headers), started_at=wall_clock(), now=clock())
    tap.request_body(chunk)                               # each body message that the app receives
    verdict = tap.response_start(status, headers, now)    # each message that the app sends, before
    verdict = tap.response_body(body, more_body, now)     #   it goes on to the client
    tap.passes_by                                         # a short way for chunks of a stream
    tap.client_gone(now)                                  # `http.disconnect`
    tapped = tap.finish(now, raised=False)                # once: at COMMIT, else when the app ends

and does with each message what the verdict says:

``SEND``
    Send it, after everything that is held.
``HOLD``
    Keep it: a client could finish on it, but what belongs to the row is still coming. Held
    messages are released by the next ``SEND`` or after the next ``COMMIT``; a shell may also give
    up waiting and call `finish`.
``HOLD_BRIEFLY``
    Keep it: it ends in an error on which clients stop, and there may be nothing more to come.
``COMMIT``
    Keep it; call `finish`, hand the row over, wait until it is durable or has failed, then send
    everything that is held. Every later message is ``SEND`` and not recorded.

`now` is monotonic seconds, `started_at` UTC Unix seconds. What is kept of a stream is its text and
the assembled object.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from nemo_gym.capture.body import BodyTap, TappedBody
from nemo_gym.capture.client_ids import CLIENT_ID_HEADERS
from nemo_gym.wire.dialects import Dialect
from nemo_gym.wire.dialects.base import Assembled, StreamState
from nemo_gym.wire.encoding import parse_encodings
from nemo_gym.wire.stream import StreamReader, looks_like_events

__all__ = [
    "ASKED_OF_REQUESTS",
    "DEFAULT_BODY_LIMIT",
    "ExchangeTap",
    "Headers",
    "Phase",
    "Request",
    "Tapped",
    "Verdict",
]

DEFAULT_BODY_LIMIT = 256 * 1024 * 1024
"""Most bytes of one body that are kept, after decompression."""

Headers = list[tuple[bytes, bytes]]
"""Names in lower case."""

_NO_BODY = frozenset({204, 304})
_NOTHING = TappedBody(b"")
ASKED_OF_REQUESTS = CLIENT_ID_HEADERS | {b"content-encoding"}
"""Headers of a request that its row depends on."""


class Verdict(Enum):
    """What to do with a message before it goes on to the client."""

    SEND = "send"
    HOLD = "hold"
    HOLD_BRIEFLY = "hold briefly"
    COMMIT = "commit"


# A member of an enumeration is looked up by its metaclass, ten times as slowly as a global.
_SEND, _COMMIT = Verdict.SEND, Verdict.COMMIT
_OPEN, _ENDED = StreamState.OPEN, StreamState.ENDED
_VERDICTS = {
    StreamState.OPEN: Verdict.SEND,
    StreamState.ENDING: Verdict.HOLD,
    StreamState.FAILING: Verdict.HOLD_BRIEFLY,
}


class Phase(Enum):
    """How far the response was when the client went away."""

    BEFORE_HEADERS = "before_headers"
    BEFORE_DATA = "before_first_data"
    MID_STREAM = "mid_stream"
    BEFORE_TERMINAL = "before_terminal"
    """All content had come, the terminal event had not."""


@dataclass(slots=True)  # not frozen: that triples what making one costs
class Request:
    """What is known of a call before its body."""

    dialect: Dialect
    method: str
    headers: Headers = field(default_factory=list[tuple[bytes, bytes]], repr=False)
    query: bytes = field(default=b"", repr=False)


class Tapped(NamedTuple):
    """One call as it crossed the boundary."""

    call: Request
    """Its head: never stored, and what is secret in it is looked for in the errors that are."""
    dialect: Dialect
    started_at: float
    """UTC Unix seconds at which the request was received."""
    latency_ms: float
    """From receipt of the request to the end of the response, in ms."""
    latency_ttft_ms: float | None
    """From receipt of the request to the first body bytes that carry data; None: none came."""
    status: int | None
    """None when no response began."""
    request: TappedBody
    response: TappedBody
    stream: Assembled | None
    """What an event stream amounts to; None when the response was none."""
    bodiless: bool
    """Whether the response has no body by the rules of HTTP."""
    phase: Phase | None
    """Set when the client went away before the call was over, whatever the application did then."""
    raised: bool
    """Whether the application ended with an exception."""
    has_client_ids: bool
    """Whether `call` has a header of `capture.client_ids`, usable or not."""


class ExchangeTap:
    """Watches one call. `body_limit`: most bytes kept of each body, after decompression."""

    __slots__ = (
        "_began",
        "_bodiless",
        "_call",
        "_declared",
        "_first_data_at",
        "_is_stream",
        "_limit",
        "_passing",
        "_phase",
        "_reader",
        "_request",
        "_response",
        "_says_stream",
        "_sent",
        "_started_at",
        "_status",
        "_told",
        "_undecided",
        "committed",
    )

    def __init__(
        self,
        request: Request,
        *,
        started_at: float,
        now: float,
        body_limit: int = DEFAULT_BODY_LIMIT,
    ) -> None:
        self._call = request
        self._started_at = started_at
        self._began = now
        self._limit = body_limit
        # Most requests have none of these, and then the headers are gone through once.
        self._told = [pair for pair in request.headers if pair[0] in ASKED_OF_REQUESTS]
        encodings = _head(self._told).encodings if self._told else _PLAIN
        self._request = BodyTap(encodings, body_limit)
        self._response: BodyTap | None = None
        self._status: int | None = None
        self._declared: int | None = None
        self._sent = 0
        self._bodiless = False
        self._is_stream: bool | None = False
        self._says_stream = False
        self._undecided = b""
        """The first bytes of a body that may or may not be a stream."""
        self._reader: StreamReader | None = None
        self._passing: StreamReader | None = None
        """The reader, where only it says when a stream is over, and it reads what is sent."""
        self._first_data_at: float | None = None
        self._phase: Phase | None = None
        self.committed = False
        """Whether the row has all it will have; later messages are not recorded."""

    def request_body(self, chunk: bytes | bytearray | memoryview) -> None:
        """Take body bytes of the request."""
        if not self.committed:
            self._request.add(chunk if isinstance(chunk, bytes) else bytes(chunk))

    def response_start(self, status: int, headers: Headers, now: float) -> Verdict:
        """Take the head of the response."""
        if self.committed:
            return _SEND
        head = _head(headers)
        self._status = status
        self._declared = head.length
        self._response = BodyTap(head.encodings, self._limit)
        self._is_stream, self._says_stream = None, head.says_events
        self._bodiless = (
            self._call.method == "HEAD" or status < 200 or status in _NO_BODY or self._declared == 0
        )
        if not self._bodiless:
            return _SEND
        if self._declared == 0 and self._says_stream:
            self._read(b"", now, last=True)  # a stream of nothing, however that is framed
        return self._commit()

    @property
    def has_begun(self) -> bool:
        """Whether the head of the response has come."""
        return self._response is not None

    @property
    def passes_by(self) -> "Callable[[bytes | bytearray | memoryview], bool] | None":
        """Return what takes a body message with more to come, where the response is a stream.

        It says True, a short way to the verdict ``SEND``, for the many in the middle of a stream;
        False: not taken, `response_body` has to. Once there, it stays the same.
        """
        reader = self._passing
        return None if reader is None else reader.waits

    def response_body(
        self, body: bytes | bytearray | memoryview, more_body: bool, now: float
    ) -> Verdict:
        """Take a body message of the response, as the application sends it."""
        if self.committed or self._response is None:
            return _SEND
        if not isinstance(body, bytes):
            body = bytes(body)
        self._sent += len(body)
        self._keep_passed(self._response)
        made = self._response.add(body)
        state = self._read(made, now, last=not more_body)
        if not more_body or (self._declared is not None and self._sent >= self._declared):
            return self._commit()
        if state is _OPEN:
            return _SEND
        return self._commit() if state is _ENDED else _VERDICTS[state]

    def client_gone(self, now: float) -> None:
        """Say that the client went away. Without effect once the row has all it will have."""
        if not self.committed and self._phase is None:
            if self._response is not None:
                self._keep_passed(self._response)
            self._phase = self._current_phase()

    def finish(self, now: float, *, raised: bool = False) -> Tapped:
        """Return the call. `raised`: the application ended with an exception."""
        complete = self.committed
        self.committed = True
        if self._response is not None:
            self._keep_passed(self._response)
        self._passing = None
        response = self._response.result() if self._response is not None else _NOTHING
        if self._undecided and self._says_stream:
            self._reader = StreamReader(self._call.dialect)  # of blank lines, and cut off there
        stream = self._reader.finish() if self._reader is not None else None
        if self._reader is not None:
            self._first_data_at = self._reader.first_data_at
            if self._reader.is_over and response.broken_off:
                # What closes the encoding comes behind the last event, and was not waited for.
                response = response._replace(broken_off=False)
        return Tapped(
            call=self._call,
            dialect=self._call.dialect,
            started_at=self._started_at,
            latency_ms=(now - self._began) * 1000,
            latency_ttft_ms=self._ttft_ms(),
            status=self._status,
            request=self._request.result(),
            response=response,
            stream=stream,
            bodiless=self._bodiless,
            phase=self._phase,
            raised=raised and not complete,
            has_client_ids=any(name in CLIENT_ID_HEADERS for name, _ in self._told),
        )

    def _commit(self) -> Verdict:
        self.committed = True
        return _COMMIT

    def _keep_passed(self, response: BodyTap) -> None:
        """Keep what has passed since the last time, before the reader reads and forgets it."""
        if self._passing is not None:
            response.add(self._passing.waiting)

    def _read(self, made: bytes, now: float, *, last: bool) -> StreamState:
        """Read what a body message adds: as events where the response is a stream of them."""
        if self._reader is not None:
            # What passes was offered to the reader before.
            if self._passing is None and self._reader.waits(made):
                return _OPEN
            return self._reader.feed(made, now)
        if self._is_stream is None:
            # The first bytes tell what it is, once there are enough of them. Not those that are
            # kept: the limit may have cut them.
            made = self._undecided + made
            self._is_stream = looks_like_events(made, last=last, said=self._says_stream)
            self._undecided = made if self._is_stream is None else b""
        if self._is_stream:
            self._reader = StreamReader(self._call.dialect)
            if self._declared is None and self._response is not None and self._response.is_plain:
                self._passing = self._reader
            return self._reader.feed(made, now)
        if self._first_data_at is None and made.strip():
            self._first_data_at = now
        return _OPEN

    def _current_phase(self) -> Phase:
        if self._status is None:
            return Phase.BEFORE_HEADERS
        if self._reader is None:
            return Phase.MID_STREAM if self._first_data_at is not None else Phase.BEFORE_DATA
        if self._reader.first_data_at is None:
            return Phase.BEFORE_DATA
        return Phase.BEFORE_TERMINAL if self._reader.content_complete else Phase.MID_STREAM

    def _ttft_ms(self) -> float | None:
        first = self._first_data_at
        return None if first is None else (first - self._began) * 1000


class _Head(NamedTuple):
    """What the headers of a message say about its body."""

    encodings: list[str]
    length: int | None
    says_events: bool
    """Whether it is called an event stream. Its first bytes have the last word: JSON can't begin as
    one does, and there are servers that call everything the one or the other."""


_PLAIN: list[str] = []
_ABOUT_BODIES = frozenset({b"content-encoding", b"content-length", b"content-type"})


def _head(headers: Headers) -> _Head:
    encodings: list[bytes] = []
    length, media = None, b""
    for pair in headers:
        name = pair[0].lower()
        if name not in _ABOUT_BODIES:
            continue
        value = pair[1]
        if name == b"content-type":
            media = value.partition(b";")[0].strip().lower()
        elif name == b"content-encoding":
            encodings.append(value)
        elif value.strip().isdigit():
            length = int(value)
    says_events = media == b"text/event-stream"
    return _Head(parse_encodings(encodings) if encodings else _PLAIN, length, says_events)
