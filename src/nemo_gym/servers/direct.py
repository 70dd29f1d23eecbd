"""Model routes without FastAPI's way to them, which costs a call as much as forwarding it.

The routes of an app in, those out that can be found by method and path alone. Only for an app that
has no middleware and no handlers for errors beside its own: nobody could tell the difference.
"""

from collections.abc import Awaitable, Iterable, Sequence

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.servers.raw import RouteEndpoint

__all__ = ["DirectRoutes", "Found", "direct_routes"]

Found = dict[tuple[str, str], RouteEndpoint | None]
"""By method and path; None: another route comes first."""


def direct_routes(routes: Iterable[BaseRoute]) -> Found:
    """Return the direct routes, as far as the routes before them are for one path each."""
    found: Found = {}
    for route in routes:
        if not isinstance(route, Route) or "{" in route.path:
            break
        endpoint = route.endpoint
        direct = endpoint if isinstance(endpoint, RouteEndpoint) and endpoint.direct else None
        for method in route.methods or ():
            found.setdefault((method, route.path), direct)
    return found


class DirectRoutes:
    """ASGI middleware around a FastAPI app: what is found goes past it, all else to it."""

    def __init__(self, routes: Sequence[BaseRoute], app: ASGIApp) -> None:
        self.app = app
        self._routes = routes
        self._seen = 0
        self._found: Found = {}

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        found = None
        if len(self._routes) != self._seen:
            # Routes may be added as long as the app lives.
            self._seen, self._found = len(self._routes), direct_routes(self._routes)
        if scope["type"] == "http" and not scope.get("root_path"):
            found = self._found.get((scope["method"], scope["path"]))
        return (self.app if found is None else found)(scope, receive, send)
