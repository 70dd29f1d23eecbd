"""A connection whose responses go out with as few writes as they can: the head with its body.

The HTTP server writes the head of a response and then its body. Each write is a call of the
system, a segment, and one more thing for the client to wake up for: a tenth of what a short
answer costs. The head waits for what is written next, and no longer than for the next turn of the
loop: what follows later, as in a stream, follows by itself.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

__all__ = ["OneWrite"]

_HEAD = b"HTTP/1."
_COPIED = 32 * 1024
"""Longer ones are not copied to be one piece: the transport writes two at once."""


class OneWrite(asyncio.Transport):
    """Does what `transport` does, and writes what begins as a head does with what follows it."""

    __slots__ = ("_head", "_inner", "_loop", "_turn")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._inner = transport
        self._loop = loop
        self._head = b""
        """What waits."""
        self._turn: asyncio.Handle | None = None
        """Due when it has waited for long enough."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write, or keep a head until what follows it is written."""
        head = self._head
        if head:
            self._forget()
            if len(data) <= _COPIED:
                self._inner.write(head + data)
            else:
                self._inner.writelines((head, data))
        elif data[: len(_HEAD)] == _HEAD:
            # A body that begins so is none the worse for it.
            self._head = bytes(data)
            self._turn = self._loop.call_soon(self._write_head)
        else:
            self._inner.write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write what waits and these."""
        self._write_head()
        self._inner.writelines(list_of_data)

    def write_eof(self) -> None:
        """Write what waits, and nothing more."""
        self._write_head()
        self._inner.write_eof()

    def close(self) -> None:
        """Write what waits, and close."""
        self._write_head()
        self._inner.close()

    def abort(self) -> None:
        """Close at once; what waits is lost, as is what the transport has not written."""
        self._forget()
        self._inner.abort()

    def is_closing(self) -> bool:
        """Say whether it is closed, or about to be."""
        return self._inner.is_closing()

    def pause_reading(self) -> None:
        """Read no more."""
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self._inner.resume_reading()

    def is_reading(self) -> bool:
        """Say whether it is read."""
        return self._inner.is_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the transport knows of the connection."""
        return self._inner.get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return who reads."""
        return self._inner.get_protocol()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Let another read."""
        self._inner.set_protocol(protocol)

    def can_write_eof(self) -> bool:
        """Say whether it can be closed in one direction."""
        return self._inner.can_write_eof()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set from how many bytes on writers wait."""
        self._inner.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return how many bytes are not written yet."""
        return self._inner.get_write_buffer_size() + len(self._head)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return from how many bytes on writers wait, and until how few."""
        return self._inner.get_write_buffer_limits()

    def _write_head(self) -> None:
        head = self._head
        if head:
            self._forget()
            if not self._inner.is_closing():
                self._inner.write(head)

    def _forget(self) -> None:
        self._head = b""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
