"""A transport that answers from a list, and remembers what it was asked."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nemo_gym.errors import TransportError
from nemo_gym.transport.base import Call, RawHeaders

__all__ = ["FakeReply", "FakeTransport"]


@dataclass(slots=True)
class FakeReply:
    """An answer prepared beforehand; `pieces` come one a `chunk()`, then `error` is raised."""

    status: int = 200
    headers: RawHeaders = field(default_factory=list)
    pieces: Sequence[bytes] = ()
    error: TransportError | None = None
    closed: bool = False
    """Set when the caller closed it before its end."""
    _next: int = 0

    @property
    def ended(self) -> bool:
        """Whether all pieces have been handed out and no error follows."""
        return self._next == len(self.pieces) and self.error is None

    async def chunk(self) -> bytes:
        """Return the next piece; at the end `b""`, or raise the error."""
        if self._next < len(self.pieces):
            self._next += 1
            return self.pieces[self._next - 1]
        if self.error is not None:
            raise self.error
        return b""

    async def read(self) -> bytes:
        """Return all pieces that are left as one."""
        left = []
        while piece := await self.chunk():
            left.append(piece)
        return b"".join(left)

    async def aclose(self) -> None:
        """Remember whether that was before the end."""
        self.closed = not self.ended


class FakeTransport:
    """Gives `answers` in order, one a call; an error among them is raised. The last one repeats."""

    def __init__(self, *answers: FakeReply | TransportError) -> None:
        self.calls: list[Call] = []
        self.open = True
        self._answers = list(answers) or [FakeReply()]

    async def send(self, call: Call) -> FakeReply:
        """Remember `call` and give the next answer."""
        self.calls.append(call)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, TransportError):
            raise answer
        return FakeReply(answer.status, list(answer.headers), answer.pieces, answer.error)

    async def aclose(self) -> None:
        """Remember that it was closed."""
        self.open = False
