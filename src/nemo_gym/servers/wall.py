"""The wall of a server: an unhandled exception ends in one logged traceback and one JSON answer.

It stands outside everything else, so that the HTTP server never logs the same traceback again. A
response that has begun cannot be taken back: its connection is broken off instead.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.servers.failures import Failure, failure_body
from nemo_gym.servers.raw import send_json

__all__ = ["Answer", "FailureWall"]

logger = logging.getLogger(__name__)

Answer = Callable[[str, BaseException], tuple[int, object]]
"""Path and exception in; status and JSON value out."""


class FailureWall:
    """ASGI middleware; `answer` says what the client of a failed request gets."""

    def __init__(self, app: ASGIApp, answer: Answer, server_name: str) -> None:
        self.app = app
        self.answer = answer
        self.server_name = server_name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; every other kind of scope passes through."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = finished = False

        def noted_send(message: Message) -> Awaitable[None]:
            nonlocal started, finished
            started = True
            finished = message["type"] == "http.response.body" and not message.get("more_body")
            return send(message)

        try:
            await self.app(scope, receive, noted_send)
        except asyncio.CancelledError:
            # The server stops; a client that went away is the guard's business.
            if not started:
                said = f"{self.server_name} was stopped while it worked on this call"
                await send_json(send, 503, failure_body(Failure("connection", said)))
            raise
        except GeneratorExit:
            raise
        except BaseException as exc:
            # `sys.exit()` in a verifier, too: it would end the event loop, and every rollout.
            logger.exception("%s: %s %s failed", self.server_name, scope["method"], scope["path"])
            if not started:
                status, body = self.answer(scope["path"], exc)
                await send_json(send, status, body)
            elif not finished:
                if isinstance(exc, Exception):
                    raise
                raise RuntimeError(f"{type(exc).__name__} in the middle of a response") from exc
