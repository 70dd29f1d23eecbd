"""The one shape of a call to another server: a `Call` goes in, a `Reply` comes out as it arrives.

Bytes pass through: nothing is decoded, decompressed or collected here. Errors are those under
`TransportError` in `nemo_gym.errors`.
"""

from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["Call", "RawHeaders", "Reply", "Transport"]

RawHeaders = list[tuple[bytes, bytes]]
"""Header lines in order, as on the wire; names in lower case."""


@dataclass(slots=True)
class Call:
    """One outgoing request. The transport adds `host`, `content-length` and connection headers."""

    method: str
    target: str
    """Path and query, beginning with a slash, already percent-encoded."""
    headers: RawHeaders = field(default_factory=list)
    body: bytes = b""
    idle_timeout_s: float | None = None
    """Longest silence before and within the reply, in seconds. None takes the transport's own."""
    once: bool = False
    """Whether it may be sent only once, even where the other side seems not to have heard of it."""
    replaced: int = 0
    """Kept connections that closed on this call before they said anything; the transport counts."""


class Reply(Protocol):
    """A response whose head has come and whose body comes as it is asked for."""

    status: int
    headers: RawHeaders

    @property
    def ended(self) -> bool:
        """Whether the body ended whole and nothing of it is left to hand out.

        Known early where the end came with the last bytes; else only `chunk()` tells.
        """
        ...

    async def chunk(self) -> bytes:
        """Return the next body bytes as they came, `b""` when the body ended whole.

        Raises `ConnectionLost` when the connection broke before the end, `CallTimeout` on idle.
        """
        ...

    async def read(self) -> bytes:
        """Return all that is left of the body."""
        ...

    async def aclose(self) -> None:
        """End the call. Before the end of the body this cancels it at the other side."""
        ...


class Transport(Protocol):
    """A way to one server: HTTP with a pool of connections, an app in this process, or a fake."""

    async def send(self, call: Call) -> Reply:
        """Send `call`, return its reply once the head has come."""
        ...

    async def aclose(self) -> None:
        """Close what is pooled."""
        ...
