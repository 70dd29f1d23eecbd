"""Clients that went away, counted by route."""

from starlette.types import Scope

from nemo_gym.telemetry import observer
from nemo_gym.telemetry.routes import route_of
from nemo_gym.telemetry.trace_middleware import CLIENT_GONE

__all__ = ["count_cancellation"]


def count_cancellation(scope: Scope, response_started: bool) -> None:
    """Count one client that went away, by the route template its request was for.

    The span of the request is told, too: it stands outside of who noticed.
    """
    scope[CLIENT_GONE] = True
    counts = observer.request_counts()
    if counts is not None:
        counts.count_cancellation(route_of(scope), response_started)
