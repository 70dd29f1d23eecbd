"""The HTTP protocol of our servers: requests as they come, with heads of bounded length.

A head that goes on beyond the bound is answered 431, and its connection is closed; without a bound
one client could fill the memory of every rollout of a process. A client that offers to speak
another protocol (`Upgrade: h2c`, as some do on every plain connection) is served in HTTP/1.1, which
RFC 9110 section 7.8 leaves to the server. Each request is told of its client by the connection
itself (`transport.caller`), which goes on reading while requests wait behind it, in bounds.
"""

import asyncio

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from nemo_gym.servers.one_write import OneWrite
from nemo_gym.transport.caller import CALLER, Caller

__all__ = ["MOST_HEAD_BYTES", "MOST_WAITING", "MOST_WAITING_BYTES", "BoundedHeads"]

MOST_HEAD_BYTES = 1 << 20
"""Of request line and headers together, as far as they are read before they are whole."""
MOST_WAITING = 16
"""Requests that a client may have sent behind the one that is answered, and still be heard."""
MOST_WAITING_BYTES = 1 << 20
"""Of the bodies of those."""

_REFUSED = b"the head of the request is longer than %d bytes" % MOST_HEAD_BYTES
_ANSWER = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_REFUSED), _REFUSED)
)


_INVALID = "Invalid HTTP request received."
_OF_THE_OFFER = frozenset((b"upgrade", b"http2-settings"))


class BoundedHeads(HttpToolsProtocol):
    """The protocol of the HTTP server, counting the bytes of a head that is not whole yet."""

    _in_head = False
    _head_bytes = 0
    _offered = False
    """Whether the head that has come offers another protocol."""
    _answered: RequestResponseCycle | None = None
    """The request that is being answered; `cycle` is the last that came."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as there
        """Take the transport."""
        self._caller = Caller()
        super().connection_made(OneWrite(transport, self.loop))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request under way."""
        # First: what waited to write is woken next, and whoever waited for that in
        # `asyncio.wait_for` takes its end and forgets to have been cancelled (Python 3.11).
        self._caller.leaves()
        answered = self._answered
        if answered is not None and answered is not self.cycle and not answered.response_complete:
            answered.disconnected = True
            answered.message_event.set()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """Let what waited write on, or tell it that the connection is closing."""
        if self.transport.is_closing():
            self._caller.leaves()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client; refuse the rest of a head that is too long."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._offered:
                self._decline(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.logger.warning(_INVALID)
            self.send_400_response(_INVALID)
            return
        if self.flow.read_paused:
            self._hear_on()
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
                self.transport.write(_ANSWER)
                self.transport.close()

    def on_message_begin(self) -> None:
        """Begin to count."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()
        self._caller.is_unheard = False
        self.scope["extensions"] = {CALLER: self._caller}  # type: ignore[dict-item]  # ours is no dict

    def on_headers_complete(self) -> None:
        """Count no longer, and begin the request."""
        self._in_head = False
        self._offered = self.parser.should_upgrade() and self._get_upgrade() is not None
        if not self._offered:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End the request, if it has begun."""
        if not self._offered:
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def _hear_on(self) -> None:
        """Read on behind a request that waits for its turn, or say that nothing more is heard."""
        # Not read at all, a client that leaves would let what it asked for before run on.
        waiting = self.pipeline
        if (
            0 < len(waiting) <= MOST_WAITING
            and sum(len(cycle.body) for cycle, _ in waiting) <= MOST_WAITING_BYTES
        ):
            self.flow.resume_reading()
        else:
            self._caller.falls_silent()

    def _decline(self, rest: bytes) -> None:
        """Read a head anew without what it offers, as which the parser takes all that follows."""
        version = self.parser.get_http_version().encode("ascii")
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                options = [option.strip() for option in value.split(b",")]
                value = b", ".join(o for o in options if o.lower() not in _OF_THE_OFFER)  # noqa: PLW2901 - what is left
                if not value:
                    continue
            if name not in _OF_THE_OFFER:
                lines.append(b"%b: %b" % (name, value))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as the one before
        self.data_received(b"\r\n".join([*lines, b"", rest]))
