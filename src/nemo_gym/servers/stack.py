"""The stack of a server: a FastAPI app with our layers around everything, its own included.

From outside in: failure wall (it counts requests too), the span of a trace, disconnect guard, the
layers of the server's kind (capture, or rollout context and session), then FastAPI with the user's
routes.
The layers are put on by the app itself, so that a test client and a call inside a cell meet the
same as a socket.
"""

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.servers.counts import count_cancellation
from nemo_gym.servers.direct import DirectRoutes
from nemo_gym.servers.guard import DisconnectGuard
from nemo_gym.servers.raw import json_bytes, raw_route, send_json
from nemo_gym.servers.wall import Answer, FailureWall, Stopped
from nemo_gym.telemetry.observer import observe_app_event_loop
from nemo_gym.telemetry.trace_middleware import TraceMiddleware
from nemo_gym.wire.json import JsonError, loads_strictly

__all__ = ["GymApp", "JsonRoute", "Layers", "OrjsonRequest", "new_app"]

Layers = Callable[[ASGIApp], ASGIApp]

_LOOP_NAME = "server"
_OPTIONS: dict[str, Any] = {
    # Newer FastAPI measures and traces by itself; the counts and traces here are our own.
    "telemetry": {"tracing": False, "metrics": False, "logs": False},
    # A JSON body is one whether or not the client says so.
    "strict_content_type": False,
}
_KNOWN_OPTIONS = _OPTIONS.keys() & inspect.signature(FastAPI).parameters.keys()


class GymApp(FastAPI):
    """A FastAPI app with `layers` outside everything, its error middleware included."""

    def __init__(self, title: str, layers: Layers) -> None:
        super().__init__(title=title, **{name: _OPTIONS[name] for name in _KNOWN_OPTIONS})
        self._layers = layers
        self.own_handlers: dict[Any, Any] | None = None
        """The handlers of errors that it was made with; None: not known."""
        self.router.route_class = JsonRoute

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or whatever else a server asks."""
        if scope["type"] != "http" or self.root_path:
            await super().__call__(scope, receive, send)
            return
        scope["app"] = self  # as both parents do, without a frame for each
        if self.middleware_stack is None:
            self.middleware_stack = self.build_middleware_stack()
        await self.middleware_stack(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """Return what FastAPI and the user put together, inside our layers."""
        inner = super().build_middleware_stack()
        if not self.user_middleware and self.exception_handlers == self.own_handlers:
            inner = DirectRoutes(self.router.routes, inner)
        return self._layers(inner)


class OrjsonRequest(Request):
    """A request whose JSON is read by a fast decoder, by the standard library where it says no."""

    async def json(self) -> Any:
        """Return the decoded body; raises `JSONDecodeError`."""
        try:
            return loads_strictly(await self.body())
        except JsonError:
            # NaN and Infinity are not JSON, but Python clients send them.
            return await super().json()


class JsonRoute(APIRoute):
    """A validated route, with faster JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler, given an `OrjsonRequest`."""
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            if not isinstance(request, OrjsonRequest):
                request = OrjsonRequest(request.scope, request.receive)
            return await handle(request)

        return handle_json


def new_app(name: str, layers: Layers, answer: Answer, stopped: Stopped | None = None) -> GymApp:
    """Return an app named `name` that answers `GET /health`.

    `layers` are those of the server's kind; `answer` says what a failed request gets, `stopped`
    what one gets that is cut off because the server stops.
    """

    def wrap(app: ASGIApp) -> ASGIApp:
        guarded = DisconnectGuard(layers(app), count_cancellation)
        return FailureWall(TraceMiddleware(guarded, name), answer, name, stopped)

    def on_exception(request: Request, exc: Exception) -> Response:
        status, body = answer(request.url.path, exc)
        content = body if isinstance(body, bytes) else json_bytes(body)
        return Response(content, status, media_type="application/json")

    app = GymApp(name, wrap)
    app.add_exception_handler(Exception, on_exception)
    app.own_handlers = dict(app.exception_handlers)
    raw_route(app, "/health", _health, ["GET"])
    observe_app_event_loop(app, _LOOP_NAME)
    return app


async def _health(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send_json(send, 200, {"status": "ok"})
