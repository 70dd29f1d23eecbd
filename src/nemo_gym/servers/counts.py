"""Request counts: the outermost layer of a server.

Plain integers are bumped on the way: those of the live view always, the others while telemetry
exports them.
"""

from collections.abc import Awaitable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.telemetry import observer
from nemo_gym.telemetry.live import server_counts
from nemo_gym.telemetry.routes import route_of

__all__ = ["RequestCounting", "count_cancellation"]

_SERVER_ERROR = 500


class RequestCounting:
    """ASGI middleware that tells telemetry of requests, responses and unhandled exceptions."""

    def __init__(self, app: ASGIApp, server_name: str) -> None:
        self.app = app
        self._live = server_counts(server_name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; every other kind of scope passes through."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        live, counts = self._live, observer.request_counts()
        failed = False

        def counted_send(message: Message) -> Awaitable[None]:
            nonlocal failed
            if message["type"] == "http.response.start":
                failed = message["status"] >= _SERVER_ERROR
                if counts is not None:
                    counts.responses[message["status"]] += 1
            return send(message)

        live.requests += 1
        live.in_flight += 1
        if counts is not None:
            counts.in_flight += 1
        try:
            await self.app(scope, receive, counted_send)
        except Exception:
            failed = True
            if counts is not None:
                counts.unhandled_exceptions += 1
            raise
        finally:
            live.in_flight -= 1
            live.errors += failed
            if counts is not None:
                counts.in_flight -= 1


def count_cancellation(scope: Scope, response_started: bool) -> None:
    """Count one client that went away, by the route template its request was for."""
    counts = observer.request_counts()
    if counts is not None:
        counts.count_cancellation(route_of(scope), response_started)
