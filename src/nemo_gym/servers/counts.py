"""Clients that went away, counted by route."""

from starlette.types import Scope

from nemo_gym.telemetry import observer
from nemo_gym.telemetry.routes import route_of

__all__ = ["count_cancellation"]


def count_cancellation(scope: Scope, response_started: bool) -> None:
    """Count one client that went away, by the route template its request was for."""
    counts = observer.request_counts()
    if counts is not None:
        counts.count_cancellation(route_of(scope), response_started)
