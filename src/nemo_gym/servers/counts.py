"""Request counts: the outermost layer of a server.

Plain integers are bumped on the way; while nothing exports it costs one global read.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.telemetry import observer
from nemo_gym.telemetry.names import UNMATCHED_ROUTE

__all__ = ["RequestCounting", "count_cancellation"]


class RequestCounting:
    """ASGI middleware that tells telemetry of requests, responses and unhandled exceptions."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; every other kind of scope passes through."""
        counts = observer.request_counts()
        if counts is None or scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def counted_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                counts.count_response(message["status"])
            await send(message)

        counts.in_flight += 1
        try:
            await self.app(scope, receive, counted_send)
        except Exception:
            counts.unhandled_exceptions += 1
            raise
        finally:
            counts.in_flight -= 1


def count_cancellation(scope: Scope, response_started: bool) -> None:
    """Count one client that went away, by the route template its request was for."""
    counts = observer.request_counts()
    if counts is not None:
        route = getattr(scope.get("route"), "path", UNMATCHED_ROUTE)
        counts.count_cancellation(route, response_started)
