"""The wall of a server: an unhandled exception ends in one logged traceback and one JSON answer.

It stands outside everything else, so that the HTTP server never logs the same traceback again. A
response that has begun cannot be taken back: its connection is broken off instead. Requests are
counted here too: what is outermost sees each once, and a layer of its own would cost every call.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.servers.failures import Failure, call_failed_in, failure_body
from nemo_gym.servers.raw import send_json
from nemo_gym.telemetry.counts import RequestCounts
from nemo_gym.telemetry.live import server_counts
from nemo_gym.telemetry.observer import request_counts

__all__ = ["Answer", "FailureWall", "Stopped"]

_SERVER_ERROR = 500

logger = logging.getLogger(__name__)

Answer = Callable[[str, BaseException], tuple[int, object]]
"""Path and exception in; status and JSON value out."""
Stopped = Callable[[Scope], Iterable[Message]]
"""The scope of a request that is cut off because its server stops in; the response to it out."""


class FailureWall:
    """ASGI middleware; `answer` says what the client of a failed request gets.

    `stopped` says what one gets whose request a stopping server cuts off; by default, that its
    rollout failed.

    Counts every request: for the live view always, the rest while telemetry exports.
    """

    def __init__(
        self, app: ASGIApp, answer: Answer, server_name: str, stopped: Stopped | None = None
    ) -> None:
        self.app = app
        self.stopped = stopped
        self.answer = answer
        self.server_name = server_name
        self._live = server_counts(server_name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; every other kind of scope passes through."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        live, counts = self._live, request_counts()
        response = _Response(send, counts)
        live.requests += 1
        live.in_flight += 1
        if counts is not None:
            counts.in_flight += 1
        try:
            await self.app(scope, receive, response.send)
        except BaseException as exc:  # `sys.exit()` in a verifier, too
            if counts is not None and isinstance(exc, Exception) and not call_failed_in(exc):
                counts.unhandled_exceptions += 1  # what another server failed with is counted there
            if not await self._settled(exc, scope, send, response):
                # Not raised in there: a traceback holds its frames, that one this exception, and
                # the ring would hold the whole request until the garbage collector comes by.
                if isinstance(exc, Exception | asyncio.CancelledError | GeneratorExit):
                    raise
                # As it is, it would end the event loop, and every rollout with it.
                said = f"{type(exc).__name__} in the middle of a response"
                raise RuntimeError(said) from exc
        finally:
            live.in_flight -= 1
            live.errors += response.failed
            if counts is not None:
                counts.in_flight -= 1

    async def _settled(
        self, exc: BaseException, scope: Scope, send: Send, response: "_Response"
    ) -> bool:
        """Answer for a handler that raised, if that can be; False: the connection must break."""
        if isinstance(exc, asyncio.CancelledError):
            # The server stops; a client that went away is the guard's business.
            if response.started:
                return False
            if self.stopped is not None:
                for message in self.stopped(scope):
                    await send(message)
            else:
                said = f"{self.server_name} was stopped while it worked on this call"
                await send_json(send, 503, failure_body(Failure("connection", said)))
            return False
        if isinstance(exc, GeneratorExit):
            return False
        response.failed = True
        method, path = scope["method"], scope["path"]
        logger.error("%s: %s %s failed", self.server_name, method, path, exc_info=exc)
        if response.started:
            return response.finished
        status, body = self.answer(path, exc)
        await send_json(send, status, body)
        return True


class _Response:
    """How far a response is, by what has been sent of it."""

    __slots__ = ("_counts", "_send", "failed", "finished", "started")

    def __init__(self, send: Send, counts: RequestCounts | None) -> None:
        self._send = send
        self._counts = counts
        self.started = self.finished = self.failed = False

    def send(self, message: Message) -> Awaitable[None]:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            status = message["status"]
            if status >= _SERVER_ERROR:
                self.failed = True
            if self._counts is not None:
                self._counts.responses[status] += 1
            self.started = True  # not before: what has no status that counts can be answered still
        elif message["type"] == "http.response.body":
            self.finished = not message.get("more_body")
        return self._send(message)
