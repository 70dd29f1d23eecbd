"""One HTTP/1.1 connection: a request's bytes go out, its reply comes in as the parser sees it.

The parser is llhttp (by way of httptools). Nothing is decoded, decompressed or collected; body
bytes wait in the `HttpReply` until they are asked for, and beyond `_HIGH_WATER` the socket is not
read. One call at a time; who may use the connection next is the pool's business.
"""

import asyncio
from collections.abc import Callable

import httptools

from nemo_gym.errors import (
    CallTimeout,
    ConnectionLost,
    ReplyInvalid,
    TransportError,
)
from nemo_gym.transport.base import RawHeaders
from nemo_gym.transport.repeated_length import may_end_head, with_one_length
from nemo_gym.transport.reply import HttpReply

__all__ = ["Connection"]

# Enough for one read of a fast socket; a slow consumer costs no more memory than this.
_HIGH_WATER = 1 << 18
# Heads that are longer are an attack or not HTTP; large ones in practice stay under 64 KB.
_HEAD_LIMIT = 1 << 18
# Up to here one copy is cheaper than two writes.
_JOIN_LIMIT = 1 << 16
# What many servers that speak TLS say to who does not.
_TLS_ALERT = b"\x15\x03"
_BODILESS_STATUS = frozenset((204, 304))


def _tell_nobody(_connection: "Connection", _usable: bool) -> None:
    """Stand in for the pool until the connection is one of its own."""


class Connection(asyncio.Protocol):
    """The protocol of one socket.

    `released` is told each time a call ended and left the connection usable (True), and once when
    the connection closed (False).
    """

    __slots__ = (
        "_begun_at",
        "_buffered",
        "_complete",
        "_head",
        "_head_refused",
        "_head_so_far",
        "_headers",
        "_heard_at",
        "_idle_s",
        "_interim",
        "_name",
        "_no_body",
        "_parser",
        "_paused",
        "_reply",
        "_reusable",
        "_timer",
        "_transport",
        "_unsent",
        "closed",
        "heard",
        "idle_since",
        "loop",
        "released",
    )

    def __init__(self, name: str) -> None:
        self._name = name
        self.released: Callable[[Connection, bool], None] = _tell_nobody
        self.loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._head: asyncio.Future[HttpReply] | None = None
        self._reply: HttpReply | None = None
        self._headers: RawHeaders = []
        self._timer: asyncio.TimerHandle | None = None
        self._idle_s: float | None = None
        self._heard_at = self._begun_at = self.idle_since = 0.0
        self._head_so_far: bytearray | None = None
        self._head_refused = False
        self._buffered = self._unsent = 0
        self._complete = self._interim = self._no_body = self._paused = self._reusable = False
        self.closed = self.heard = False

    def begin(
        self, head: bytes, body: bytes, *, no_body: bool, idle_s: float | None
    ) -> asyncio.Future[HttpReply]:
        """Send a request; the future has the reply once its head has come, or the error.

        `no_body`: the reply to a HEAD request, whatever its headers say.
        """
        transport = self._transport
        if transport is None:
            raise RuntimeError("the connection is not open")
        self._head = head_waiter = self.loop.create_future()
        self._reply, self._headers = None, []
        self._head_so_far = None
        self._buffered = self._unsent = 0
        self._complete = self._reusable = self.heard = False
        self._no_body, self._idle_s = no_body, idle_s
        self._heard_at = self._begun_at = self.loop.time()
        if self.closed:  # between being handed over and being used
            self._head = None
            head_waiter.set_exception(self._lost(None))
            return head_waiter
        if len(body) > _JOIN_LIMIT:
            transport.writelines((head, body))
        else:
            transport.write(head + body)
        self._watch_silence()
        return head_waiter

    def abandon(self, owner: "HttpReply | asyncio.Future[HttpReply]") -> None:
        """Close the connection if it still works for `owner`, which cancels the call over there."""
        if owner is self._reply or owner is self._head:
            self._fail(
                ConnectionLost(f"{self._name}: the call was given up", response_started=True)
            )

    def age_of_call(self) -> float:
        """Return how long ago the last call was sent, in seconds."""
        return self.loop.time() - self._begun_at

    def close(self) -> None:
        """Close an idle connection."""
        if self._transport is not None:
            self._transport.close()

    def resume(self, reply: HttpReply) -> None:
        """Read on, now that `reply` has been emptied."""
        self._buffered = 0
        if self._paused and reply is self._reply and self._transport is not None:
            self._paused = False
            self._heard_at = self.loop.time()
            self._transport.resume_reading()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; comes again with another one after an upgrade to TLS."""
        self._transport = transport  # type: ignore[assignment]  # uvloop's is no asyncio.Transport

    def data_received(self, data: bytes) -> None:
        """Feed the parser."""
        if self._head is None:
            # Nothing was asked: whatever this is, the next call must not get it as its answer.
            self.close()
            return
        self._heard_at = self.loop.time()
        self.heard = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as problem:
            if not self._goes_on_after(data):
                self._fail(_not_http(self._name, self._head_so_far or data, problem))
                return
        if self._complete:
            self._finish()
        elif self._reply is None:
            self._keep_head(data)
        elif self._reply.step is not None:
            self._reply.step()

    def _keep_head(self, piece: bytes) -> None:
        """Keep what came of a head that has not come whole."""
        if self._head_so_far is None:
            self._head_so_far = bytearray()
        self._head_so_far += piece
        if len(self._head_so_far) > _HEAD_LIMIT:
            self._fail(ReplyInvalid(f"{self._name}: the head of the answer has no end"))

    def _goes_on_after(self, refused: bytes) -> bool:
        """Say whether the answer can be had although the parser refused bytes of it."""
        if self._complete:  # what it refused lies behind the end of the answer
            self._reusable = False
            return True
        if self._reply is not None:
            return False
        before = self._head_so_far or b""
        if self._head_refused and not may_end_head(before, refused):
            return True
        head = with_one_length(bytes(before) + refused)
        self._head_refused = head == b""
        if not head:
            return head is not None
        self._parser, self._headers = httptools.HttpResponseParser(self), []
        try:
            self._parser.feed_data(head)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._reusable = False
            return self._complete
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """End the call under way, if any, and tell the pool."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._head is None:
            self.released(self, False)
        elif exc is None and self._reply is not None and self._ends_by_closing(self._reply):
            self._finish()
        else:
            self._fail(self._lost(exc))

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header line."""
        if self._reply is None:  # else a trailer
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Hand the reply to who waits for it, unless it is an interim one."""
        status = self._parser.get_status_code()
        self._interim = 100 <= status < 200
        if self._interim or self._complete:
            self._headers = []
            return
        self._reusable = self._parser.should_keep_alive() and not self._no_body
        self._reply = HttpReply(self, status, self._headers)
        if self._no_body:
            self._complete = True
        if self._head is not None and not self._head.done():
            self._head.set_result(self._reply)

    def on_body(self, piece: bytes) -> None:
        """Take body bytes; stop reading the socket when too many wait."""
        if self._reply is None or self._complete:
            return
        self._reply.add(piece)
        self._buffered += len(piece)
        if self._buffered > _HIGH_WATER and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_begin(self) -> None:
        """See whether something follows the answer that nobody asked for."""
        if self._complete:  # bytes behind the end of the answer
            self._reusable = False

    def on_message_complete(self) -> None:
        """Take note that the answer is whole."""
        if not self._interim:
            self._complete = True

    # The end of a call

    def _finish(self) -> None:
        reply, self._reply, self._head = self._reply, None, None
        if reply is not None:
            reply.end()
        transport = self._transport
        if transport is None or self.closed:
            self.released(self, False)
            return
        if self._paused:
            self._paused = False
            transport.resume_reading()
        # An answer that came before the request was out: the rest of it cannot be taken back.
        reusable = self._reusable and not transport.get_write_buffer_size()
        if not reusable:
            transport.close()
        else:
            self.idle_since = self._heard_at
            self.released(self, True)

    def _fail(self, error: TransportError) -> None:
        head, reply = self._head, self._reply
        self._head = self._reply = None
        if reply is not None:
            reply.end(error)
        elif head is not None and not head.done():
            head.set_exception(error)
        if self.closed or self._transport is None:
            self.released(self, False)
        else:
            self._transport.abort()

    def _lost(self, exc: Exception | None) -> ConnectionLost:
        how = "closed the connection" if exc is None else "broke the connection"
        started = self._reply is not None
        when = "before the answer was whole" if started else "without an answer"
        return ConnectionLost(f"{self._name} {how} {when}", response_started=started)

    def _ends_by_closing(self, reply: HttpReply) -> bool:
        """Say whether the answer has no framing of its own, so that closing is its end."""
        return reply.status not in _BODILESS_STATUS and not any(
            name in (b"content-length", b"transfer-encoding") for name, _ in reply.headers
        )

    # Silence

    def _watch_silence(self) -> None:
        """See that the timer goes off no later than the call's deadline.

        The timer outlives the call: with one timeout for all, a call costs no timer at all.
        """
        if self._idle_s is None:
            return
        deadline = self._heard_at + self._idle_s
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self.loop.call_at(deadline, self._maybe_silent)

    def _maybe_silent(self) -> None:
        self._timer = None
        if self._head is None or self._idle_s is None or self._transport is None:
            return
        unsent = self._transport.get_write_buffer_size()
        unread = self._reply is not None and self._reply.waiting_to_be_read
        if unsent != self._unsent or unread:
            # Still sending, or the consumer is the slow one: not a silence of the other side.
            self._unsent = unsent
            self._heard_at = self.loop.time()
        if self.loop.time() - self._heard_at >= self._idle_s:
            where = "within" if self._reply is not None else "before"
            self._fail(
                CallTimeout(f"{self._name} was silent for {self._idle_s:g} s {where} its answer")
            )
        else:
            self._watch_silence()


def _not_http(name: str, said: bytes | bytearray, problem: Exception) -> ReplyInvalid:
    if said.startswith(_TLS_ALERT):
        return ReplyInvalid(f"{name} speaks TLS: its URL must begin with https://", lasting=True)
    return ReplyInvalid(f"{name} does not answer in HTTP: {problem}")
