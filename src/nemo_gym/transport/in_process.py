"""Calls to an ASGI app of this process: the same stack, the same semantics, no socket.

The app runs in a task of its own with an empty `contextvars.Context`, as if a server had received
the request. One message is handed over at a time in each direction, so that a slow caller slows the
app. A caller that goes away is `http.disconnect`; an exception of the app is a 500 before the
response has started and a broken connection after.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextvars import Context
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Scope

from nemo_gym.errors import CallTimeout, ConnectionLost, TransportError
from nemo_gym.transport.base import Call, RawHeaders
from nemo_gym.transport.caller import CALLER, Caller

__all__ = ["InProcessReply", "InProcessTransport"]

_LOG = logging.getLogger(__name__)
_FAILED = b"Internal Server Error"
_DISCONNECT: Message = {"type": "http.disconnect"}


class InProcessTransport:
    """A way to `app`, whose lifespan is somebody else's business.

    `name` appears in messages. `idle_s` is the longest silence borne within a call, None: any.
    `state` is what the app's lifespan left; each request gets a copy.
    """

    def __init__(
        self,
        app: ASGIApp,
        name: str = "app",
        *,
        idle_s: float | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self._app = app
        self._name = name
        self._idle_s = idle_s
        self._state = {} if state is None else state
        self._running: set[asyncio.Task[None]] = set()

    async def send(self, call: Call) -> "InProcessReply":
        """Start the app on `call`; return its reply once the head has come."""
        idle_s = self._idle_s if call.idle_timeout_s is None else call.idle_timeout_s
        exchange = InProcessReply(self._name, call, idle_s)
        task = asyncio.get_running_loop().create_task(
            exchange.run(self._app, _scope(call, self._name, self._state, exchange)),
            context=Context(),
        )
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            await exchange.head()
        except BaseException:
            await exchange.aclose()
            raise
        return exchange

    async def aclose(self) -> None:
        """Cancel what still runs and wait for its end."""
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class InProcessReply(Caller):
    """One call: the app's `receive` and `send` on one side, a `Reply` on the other."""

    __slots__ = (
        "_call",
        "_error",
        "_idle_s",
        "_last",
        "_moved",
        "_name",
        "_piece",
        "_request_taken",
        "headers",
        "status",
    )

    def __init__(self, name: str, call: Call, idle_s: float | None) -> None:
        super().__init__()
        self.status = 0
        self.headers: RawHeaders = []
        self._name = name
        self._call = call
        self._idle_s = idle_s
        self._piece = b""
        """The body message that waits for the caller; empty: the app may send."""
        self._last = False
        """Whether the app has sent its last body message."""
        self._request_taken = False
        self._error: TransportError | None = None
        self._moved: list[asyncio.Future[None]] = []
        """Who waits for a change: the caller, the app's `send`, its `receive`."""

    # The caller's side

    @property
    def ended(self) -> bool:
        """Whether the body ended whole and all of it has been handed out."""
        return self._last and not self._piece

    async def head(self) -> None:
        """Wait for the head; raises the error that came in its place."""
        while not self.status:
            if self._error is not None:
                raise self._error
            await self._in_time("before")

    async def chunk(self) -> bytes:
        """Return the next body message's bytes, `b""` at the end."""
        while not self._piece:
            if self._last:
                return b""
            if self._error is not None:
                raise self._error
            await self._in_time("within")
        piece, self._piece = self._piece, b""
        self._notify()
        return piece

    async def read(self) -> bytes:
        """Return all that is left of the body."""
        pieces = []
        while piece := await self.chunk():
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def aclose(self) -> None:
        """Go away: the app hears `http.disconnect`, unless it had ended already."""
        self._piece = b""
        if not self._last and self._error is None:
            self._error = ConnectionLost(f"{self._name}: given up", response_started=True)
        self.leaves()
        self._notify()

    # The app's side

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Run the app to its end; what it raises becomes what a server would make of it."""
        problem = "the app ended without a whole response"
        try:
            await app(scope, self._receive, self._send)
        except asyncio.CancelledError:
            problem = "the app was cancelled"
            raise
        except TransportError as error:
            # A provider that broke off in the middle of its answer: no bug of the app.
            problem = str(error)
        except Exception:  # noqa: BLE001 - a server survives its app
            problem = "the app raised an exception"
            _LOG.exception("exception in %s", self._name)
        finally:
            if not self._last and not self.is_gone:
                self._break(problem)

    async def _receive(self) -> Message:
        if not self._request_taken:
            self._request_taken = True
            return {"type": "http.request", "body": self._call.body, "more_body": False}
        while not (self.is_gone or self._last):
            await self._change()
        return _DISCONNECT

    async def _send(self, message: Message) -> None:
        if self.is_gone:
            return
        if message["type"] == "http.response.start":
            if self.status:
                raise RuntimeError("the response has started already")
            self.headers = [(bytes(n).lower(), bytes(v)) for n, v in message.get("headers", ())]
            self.status = message["status"]
            self._notify()
        elif message["type"] == "http.response.body":
            await self._send_body(message.get("body", b""), bool(message.get("more_body", False)))
        else:
            raise RuntimeError(f"unexpected ASGI message {message['type']!r}")

    async def _send_body(self, body: Any, more: bool) -> None:
        if not self.status:
            raise RuntimeError("a response body before its start")
        if self._last:
            raise RuntimeError("the response has ended already")
        while self._piece and not self.is_gone:
            await self._change()
        if not self.is_gone:
            self._piece = b"" if self._call.method == "HEAD" else bytes(body)
            self._last = not more
            self._notify()

    def _break(self, problem: str) -> None:
        if self.status:
            self._error = ConnectionLost(f"{self._name}: {problem}", response_started=True)
        else:
            self.headers = [
                (b"content-type", b"text/plain; charset=utf-8"),
                (b"content-length", b"%d" % len(_FAILED)),
            ]
            self.status, self._piece, self._last = 500, _FAILED, True
        self._notify()

    # Both

    async def _in_time(self, where: str) -> None:
        if self._idle_s is None:
            await self._change()
            return
        try:
            async with asyncio.timeout(self._idle_s):
                await self._change()
        except TimeoutError:
            raise CallTimeout(
                f"{self._name} was silent for {self._idle_s:g} s {where} its answer"
            ) from None

    async def _change(self) -> None:
        moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._moved.append(moved)
        await moved

    def _notify(self) -> None:
        waiting, self._moved = self._moved, []
        for moved in waiting:
            if not moved.done():
                moved.set_result(None)


def _scope(call: Call, name: str, state: Mapping[str, Any], caller: Caller) -> Scope:
    path, _, query = call.target.partition("?")
    headers = [pair for pair in call.headers if pair[0] not in (b"host", b"content-length")]
    headers.append((b"host", name.encode("latin-1", "replace")))
    if call.body or call.method not in ("GET", "HEAD"):
        headers.append((b"content-length", b"%d" % len(call.body)))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": call.method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 0),
        "server": (name, None),
        "state": dict(state),
        "extensions": {CALLER: caller},
    }
