"""A response over HTTP, between the connection that hears it and the caller who reads it."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Protocol

from nemo_gym.errors import ConnectionLost, TransportError
from nemo_gym.transport.base import RawHeaders

__all__ = ["NEXT_PIECE", "HttpReply"]


class _Source(Protocol):
    """The connection that a reply comes from."""

    loop: asyncio.AbstractEventLoop
    """Where the reply is read."""

    def resume(self, reply: "HttpReply") -> None:
        """Read on."""

    def abandon(self, owner: "HttpReply") -> None:
        """Close, unless it works for somebody else by now."""


class _NextPiece:
    def __await__(self) -> "Generator[Any, None, None]":
        yield self


NEXT_PIECE = _NextPiece()
"""What whoever reads a reply that has a `step` waits for, as its task would see it."""


class HttpReply:
    """A response whose head has come over a connection; see `transport.base.Reply`."""

    __slots__ = (
        "_connection",
        "_error",
        "_pieces",
        "_whole",
        "headers",
        "status",
        "step",
        "waiter",
    )

    def __init__(self, connection: _Source, status: int, headers: RawHeaders) -> None:
        self.status = status
        self.headers = headers
        self._connection = connection
        self._pieces: list[bytes] = []
        self._whole = False
        self._error: TransportError | None = None
        self.waiter: asyncio.Future[None] | None = None
        """Ended when there is something to read, or will never be."""
        self.step: Callable[[], None] | None = None
        """If set, called instead when pieces have come; see `transport.stepping`."""

    @property
    def ended(self) -> bool:
        """Whether the body ended whole and all of it has been handed out."""
        return self._whole and not self._pieces

    async def chunk(self) -> bytes:
        """Return the next body bytes, `b""` at the end; raises the error that broke the call."""
        while not self._pieces:
            if self._whole:
                return b""
            if self._error is not None:
                raise self._error
            if self.step is not None:
                await NEXT_PIECE
                continue
            self.waiter = self._connection.loop.create_future()
            try:
                await self.waiter
            finally:
                self.waiter = None
        pieces, self._pieces = self._pieces, []
        if not self._whole:
            self._connection.resume(self)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def read(self) -> bytes:
        """Return all that is left of the body."""
        pieces = []
        while piece := await self.chunk():
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def aclose(self) -> None:
        """End the call; before the end of the body its connection is closed."""
        if not self._whole:
            self._connection.abandon(self)
            if self._error is not None and self._error.__traceback__ is not None:
                # Its traceback holds who read, and they hold this reply: another in its place.
                self._error = ConnectionLost(str(self._error), response_started=True)

    # Called by the connection.

    def add(self, piece: bytes) -> None:
        """Take body bytes that came."""
        self._pieces.append(piece)
        if self.step is None:
            self.wake()

    def end(self, error: TransportError | None = None) -> None:
        """Take note that nothing more will come."""
        if error is None:
            self._whole = True
        else:
            self._error = error
        self.wake()

    def wake(self) -> None:
        """Let a waiting `chunk()` look again."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    @property
    def waiting_to_be_read(self) -> bool:
        """Whether the consumer is the one who is slow."""
        return bool(self._pieces)
