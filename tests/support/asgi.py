"""An ASGI app that follows a script, and a client that writes down what it gets."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Client", "Script", "body", "http_scope", "start"]


def start(status: int = 200, *headers: tuple[bytes, bytes]) -> Message:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(data: bytes = b"", *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


def http_scope(path: str, method: str = "POST", *headers: tuple[bytes, bytes]) -> Scope:
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": list(headers),
    }


@dataclass
class Script:
    """Reads the request, then sends `messages`; raises `error` after them, when there is one."""

    messages: Sequence[Message]
    error: BaseException | None = None
    reads_request: bool = True
    scopes: list[Scope] = field(default_factory=list)
    before: Callable[[Scope, int], None] | None = None
    """Called before each message with its number."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        while self.reads_request and (await receive()).get("more_body"):
            pass
        for number, message in enumerate(self.messages):
            if self.before is not None:
                self.before(scope, number)
            await send(dict(message))
        if self.error is not None:
            raise self.error


@dataclass
class Client:
    """Sends a request in pieces and keeps every message of the response."""

    request: Sequence[bytes] = (b'{"model": "m"}',)
    got: list[Message] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _sent: int = 0

    async def receive(self) -> Message:
        if self._sent < len(self.request):
            self._sent += 1
            data, more = self.request[self._sent - 1], self._sent < len(self.request)
            return {"type": "http.request", "body": data, "more_body": more}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.got.append(message)

    async def call(self, app: ASGIApp, scope: Scope) -> BaseException | None:
        """Make the call; return the exception that a server would see."""
        try:
            await app(scope, self.receive, self.send)
        except BaseException as error:  # noqa: BLE001 - the law compares whatever comes out
            return error
        return None

    @property
    def data(self) -> bytes:
        """The body bytes so far."""
        return b"".join(message.get("body", b"") for message in self.got)


def headers_of(message: Message) -> dict[Any, Any]:
    return dict(message["headers"])
