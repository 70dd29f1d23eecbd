"""The server's end of a trace: an ASGI layer that takes up the caller's span.

While traces are off it costs one global read a request. It sends and receives nothing itself.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from nemo_gym.telemetry.routes import rollout_and_path, route_of
from nemo_gym.telemetry.tracing import CANCELLED, ROLLOUT_ID, Span, Tracer, extract, tracer

__all__ = ["CLIENT_GONE", "TraceMiddleware"]

CLIENT_GONE = "nemo_gym.client_gone"
"""Key of a scope whose client went away before its answer was whole."""

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[MutableMapping[str, Any], _Receive, _Send], Awaitable[None]]


class TraceMiddleware:
    """ASGI middleware: one server span a request, child of the span that the caller sent.

    A `POST` that comes without one begins a trace of its own; other requests do not.
    """

    def __init__(self, app: _App, server: str) -> None:
        self.app = app
        self.server = server

    def __call__(
        self, scope: MutableMapping[str, Any], receive: _Receive, send: _Send
    ) -> Awaitable[None]:
        """Run the app, inside a span where there is a trace."""
        owner = tracer()
        if owner is None or scope["type"] != "http":
            return self.app(scope, receive, send)
        return self._run(owner, scope, receive, send)

    async def _run(
        self, owner: Tracer, scope: MutableMapping[str, Any], receive: _Receive, send: _Send
    ) -> None:
        parent = extract(scope["headers"])
        if parent is None and scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        named = {"nemo.gym.server": self.server}
        span = owner.begin(scope["method"], "server", parent, named)
        if isinstance(span, Span):
            await self._traced(span, scope, receive, send)
            return
        with span:
            await self.app(scope, receive, send)

    async def _traced(
        self, span: Span, scope: MutableMapping[str, Any], receive: _Receive, send: _Send
    ) -> None:
        status = 0

        async def noting_send(message: _Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with span:
            try:
                await self.app(scope, receive, noting_send)
            finally:
                _describe(span, scope, status)
            if scope.get(CLIENT_GONE):
                span.end(CANCELLED)
            elif status >= 500:
                span.end(str(status))


def _describe(span: Span, scope: MutableMapping[str, Any], status: int) -> None:
    rollout_id, _ = rollout_and_path(scope)
    route = route_of(scope)
    span.name = f"{scope['method']} {route}"
    span.set("http.request.method", scope["method"])
    span.set("http.route", route)
    if status:
        span.set("http.response.status_code", status)
    if rollout_id is not None:
        span.set(ROLLOUT_ID, rollout_id)
