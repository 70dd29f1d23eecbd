"""Which route a request was for, as metrics and spans name it. Pure: a scope in, a name out.

The route that the app found says it; where none was found (yet), a path of the product's own does,
and any other is unmatched: a path may hold whatever a client likes.
"""

from collections.abc import Mapping
from typing import Any

from nemo_gym.errors import InvalidRolloutId
from nemo_gym.ids import split_prefix
from nemo_gym.telemetry.names import OWN_ROUTES, UNMATCHED_ROUTE

__all__ = ["INNER_SCOPE", "rollout_and_path", "route_of"]

INNER_SCOPE = "nemo_gym.inner_scope"
"""Key under which a layer that hands on a copy of a scope puts that copy in what it was given: the
app notes the route it finds in the scope that it gets."""


def route_of(scope: Mapping[str, Any]) -> str:
    """Return the template of the route that the request of an HTTP `scope` is for."""
    seen: Mapping[str, Any] | None = scope
    while seen is not None:
        route = getattr(seen.get("route"), "path", None)
        if isinstance(route, str):
            return route
        seen = seen.get(INNER_SCOPE)
    _, path = rollout_and_path(scope)
    return path.decode() if path in OWN_ROUTES else UNMATCHED_ROUTE


def rollout_and_path(scope: Mapping[str, Any]) -> tuple[str | None, bytes]:
    """Return the rollout id in the path of a request, None without a valid one, and the rest."""
    raw_path: bytes = scope.get("raw_path") or b""
    try:
        return split_prefix(raw_path)
    except InvalidRolloutId:
        return None, raw_path
