"""The route of a request, told to the layers outside.

Layers that change the path hand a copy of the scope on, so the route that the app finds is not seen
outside of them. `RouteTold` stands outside those layers, `tell_route` inside.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["RouteTold", "tell_route"]

_NOTE = "nemo_gym.route"


class RouteTold:
    """ASGI middleware that puts the route which the app found into the scope it was called with."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        note: list[object] = []
        scope[_NOTE] = note
        try:
            await self.app(scope, receive, send)
        finally:
            if note:
                scope["route"] = note[0]


def tell_route(app: ASGIApp) -> ASGIApp:
    """Wrap `app` so that its route is told to `RouteTold`."""

    async def telling(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        finally:
            note, route = scope.get(_NOTE), scope.get("route")
            if note is not None and route is not None:
                note.append(route)

    return telling
