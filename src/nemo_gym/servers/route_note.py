"""The route of a request, for the layers outside.

Layers that change the path hand a copy of the scope on, so the route that the app finds is not seen
outside of them. `RouteTold` stands outside those layers, `tell_route` inside; neither waits for the
app, so a request pays no frame for them. Only metrics and traces speak of routes.
"""

from collections.abc import Awaitable

from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.telemetry.observer import request_counts
from nemo_gym.telemetry.routes import INNER_SCOPES
from nemo_gym.telemetry.tracing import tracer

__all__ = ["RouteTold", "tell_route"]


class RouteTold:
    """ASGI middleware that lets `route_of` find the route in the scope it was called with."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        if request_counts() is not None or tracer() is not None:
            scope[INNER_SCOPES] = []
        return self.app(scope, receive, send)


def tell_route(app: ASGIApp) -> ASGIApp:
    """Wrap `app` so that `RouteTold` knows the scope in which it puts the route it finds."""

    def telling(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        # Out of this scope: one that held itself would be left to the garbage collector.
        inner: list[Scope] | None = scope.pop(INNER_SCOPES, None)
        if inner is not None:
            inner.append(scope)
        return app(scope, receive, send)

    return telling
