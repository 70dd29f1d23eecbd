"""The disconnect guard: a handler is cancelled when its client goes away, whatever it is doing.

uvicorn lets a handler run on after its client aborted, `send` raises nothing, and FastAPI cancels
nothing; a rollout or a provider's call would go on for nobody. The guard sits around the app, reads
`receive` beside it and replays the body to it. What the app sends passes through untouched.

Servers of ours say of themselves when a client goes away (`transport.caller`). Elsewhere body
messages are handed straight to the app for as long as it asks for them, and a handler that is
still running after `WATCH_AFTER_S` gets a reader of its own: short requests never pay for a task,
and a disconnect that came before is noticed then, since servers go on reporting it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.capture.facts import CLIENT_WENT_AWAY
from nemo_gym.transport.caller import CALLER, Caller

__all__ = ["WATCH_AFTER_S", "ClientGone", "DisconnectGuard"]

WATCH_AFTER_S = 0.005
# Body bytes read ahead for a handler that does not ask for them: beyond this the client waits.
_READ_AHEAD_BYTES = 1 << 20
_DISCONNECT: Message = {"type": "http.disconnect"}

ClientGone = Callable[[Scope, bool], None]
"""Told when a client went away: the scope of its request, and whether its response had started."""


def _ignore(_scope: Scope, _started: bool) -> None:
    """Tell nobody."""


class DisconnectGuard:
    """ASGI middleware around everything that should end with its client.

    A request gets a reader of its own after `watch_after_s` seconds.
    """

    def __init__(
        self,
        app: ASGIApp,
        client_gone: ClientGone = _ignore,
        *,
        watch_after_s: float = WATCH_AFTER_S,
    ) -> None:
        self.app = app
        self.client_gone = client_gone
        self.watch_after_s = watch_after_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; every other kind of scope passes through."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        extensions = scope.get("extensions")
        caller = extensions.get(CALLER) if extensions else None
        watched = _Watched(receive, send, self.watch_after_s, caller)
        try:
            await self.app(scope, watched.receive, watched.send)
        except asyncio.CancelledError:
            if not await watched.took_back_cancellation():
                raise
        else:
            await watched.absorb_cancellation()
        finally:
            watched.close()
            if watched.client_gone:
                self.client_gone(scope, watched.started)


async def _to_nobody() -> None:
    """End who sends something to a client that has gone.

    They have been cancelled, but that may have been swallowed on its way: `asyncio.wait_for` of
    Python 3.11 does so where what it waits for ends at that moment.
    """
    raise asyncio.CancelledError(CLIENT_WENT_AWAY)


class _Watched:
    """One request: who reads `receive` at the moment, and how far the response is."""

    __slots__ = (
        "_ahead",
        "_ahead_bytes",
        "_caller",
        "_direct",
        "_due",
        "_reader",
        "_receive",
        "_send",
        "_task",
        "_timer",
        "_wake",
        "_watch_after_s",
        "client_gone",
        "finished",
        "started",
    )

    def __init__(
        self, receive: Receive, send: Send, watch_after_s: float, caller: Caller | None
    ) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("an ASGI app is called from a task")
        self.started = self.finished = self.client_gone = False
        self._task, self._receive, self._send = task, receive, send
        self._ahead: deque[Message] = deque()
        self._ahead_bytes = 0
        self._direct = self._due = False
        self._wake: asyncio.Event | None = None
        self._reader: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watch_after_s = watch_after_s
        self._caller: Caller | None = None
        # One that is told already has a guard outside this one, or a request before this one.
        if caller is None or caller.is_gone or caller.when_gone is not None:
            self._watch_soon()
        else:
            self._caller = caller
            caller.when_gone = self._left
            caller.when_unheard = self._watch_soon
            if caller.is_unheard:
                self._watch_soon()

    def send(self, message: Message) -> Awaitable[None]:
        if self.client_gone and not self.finished:
            return _to_nobody()
        if message["type"] == "http.response.start":
            self.started = True
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            # Set before the await: what is reported from here on is the end, not a client gone.
            self.finished = True
        return self._send(message)

    async def receive(self) -> Message:
        if self._reader is None:
            return await self._receive_directly()
        while not self._ahead:
            if self.client_gone or self._reader.done():
                return _DISCONNECT
            await self._sleep()
        message = self._ahead.popleft()
        self._ahead_bytes -= len(message.get("body", b""))
        self._notify()
        return message

    def close(self) -> None:
        """End the watching; the request is over."""
        if self._timer is not None:
            self._timer.cancel()
        if self._caller is not None:
            self._caller.when_gone = self._caller.when_unheard = None
            self._caller = None
        reader, self._reader = self._reader, None
        if reader is not None:
            # Not kept: a cancelled task holds its traceback, that the reader's frame, that us, and
            # the ring would hold the whole request until the garbage collector comes by.
            reader.cancel()

    async def took_back_cancellation(self) -> bool:
        """Return whether the cancellation that just ended the handler was this guard's alone."""
        if not self.client_gone:
            return False
        await self.absorb_cancellation()  # it may not have been delivered: `_to_nobody` came first
        return self._task.cancelling() == 0

    async def absorb_cancellation(self) -> None:
        """Meet a cancellation that came too late for a handler that has returned by itself."""
        if not self.client_gone:
            return
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        self._task.uncancel()

    async def _receive_directly(self) -> Message:
        self._direct = True
        try:
            message = await self._receive()
            self._note(message)
        finally:
            self._direct = False
            if self._due:
                self._watch()
        return message

    def _watch_soon(self) -> None:
        """Give the request a reader unless it is over by then."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._watch_after_s, self._watch)

    def _watch(self) -> None:
        """Give the request a reader of its own, unless the app is reading right now."""
        if self._direct:
            self._due = True
        elif self._reader is None and not self.client_gone:
            self._reader = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        while not (self.client_gone or self.finished):
            while self._ahead_bytes > _READ_AHEAD_BYTES:
                await self._sleep()
            message = await self._receive()
            self._note(message)
            if message["type"] == "http.request":
                self._ahead.append(message)
                self._ahead_bytes += len(message.get("body", b""))
            self._notify()
            if message["type"] == "http.disconnect":
                return

    def _note(self, message: Message) -> None:
        if message["type"] == "http.disconnect":
            self._left()

    def _left(self) -> None:
        """End the handler: its client has gone."""
        if not (self.finished or self.client_gone):
            self.client_gone = True
            self._task.cancel(CLIENT_WENT_AWAY)

    async def _sleep(self) -> None:
        if self._wake is None:
            self._wake = asyncio.Event()
        self._wake.clear()
        await self._wake.wait()

    def _notify(self) -> None:
        if self._wake is not None:
            self._wake.set()
