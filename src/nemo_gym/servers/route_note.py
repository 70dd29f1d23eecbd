"""The route of a request, told to the layers outside.

Layers that change the path hand a copy of the scope on, so the route that the app finds is not seen
outside of them. `RouteTold` stands outside those layers, `tell_route` inside. Only metrics and
traces speak of routes: without them both hand a request straight on.
"""

from collections.abc import Awaitable

from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.telemetry.observer import request_counts
from nemo_gym.telemetry.tracing import tracer

__all__ = ["RouteTold", "tell_route"]

_NOTE = "nemo_gym.route"


class RouteTold:
    """ASGI middleware that puts the route which the app found into the scope it was called with."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        if request_counts() is None and tracer() is None:
            return self.app(scope, receive, send)  # nobody asks for the route
        return self._told(scope, receive, send)

    async def _told(self, scope: Scope, receive: Receive, send: Send) -> None:
        note: list[object] = []
        scope[_NOTE] = note
        try:
            await self.app(scope, receive, send)
        finally:
            if note:
                scope["route"] = note[0]


def tell_route(app: ASGIApp) -> ASGIApp:
    """Wrap `app` so that its route is told to `RouteTold`."""

    def telling(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        note = scope.get(_NOTE)
        return app(scope, receive, send) if note is None else tell(note, scope, receive, send)

    async def tell(note: list[object], scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        finally:
            route = scope.get("route")
            if route is not None:
                note.append(route)

    return telling
