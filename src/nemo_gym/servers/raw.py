"""Routes without validation or dependency injection, for the hot path of built-in servers.

A raw route is an ASGI app at a path inside a FastAPI app: it costs a quarter of a validated one.
JSON in and out goes without detours; a JSON object in, any JSON value out.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.wire.json import dumps, loads_strictly

__all__ = [
    "JsonHandler",
    "RawReply",
    "RawRoute",
    "RouteEndpoint",
    "json_bytes",
    "json_object",
    "json_route",
    "raw_route",
    "send_json",
]

JsonHandler = Callable[[Request, dict[str, Any]], Awaitable[object]]
"""Gets the request (session, cookies) and its decoded body; what it returns is sent as JSON.

Bytes are sent as they are; `RawReply` adds headers.
"""


@dataclass(frozen=True, slots=True)
class RawRoute:
    """An ASGI app at a path."""

    path: str
    """May hold `{name}` parts, which are in `scope["path_params"]`."""
    app: ASGIApp
    methods: tuple[str, ...] = ("POST",)


@dataclass(frozen=True, slots=True)
class RawReply:
    """JSON bytes with headers of their own, as the answer of a `JsonHandler`."""

    body: bytes
    headers: list[tuple[bytes, bytes]]


_JSON_HEADER = (b"content-type", b"application/json")


def raw_route(
    app: FastAPI,
    path: str,
    endpoint: ASGIApp,
    methods: Iterable[str] = ("POST",),
    *,
    direct: bool = False,
) -> None:
    """Put the ASGI app `endpoint` at `path`; `{name}` parts of the path are in `path_params`.

    `direct`: it needs nothing of FastAPI, not even for its errors, so that it may be called
    without it.
    """
    raw = RouteEndpoint(endpoint, path, direct=direct)
    app.router.routes.append(Route(path, endpoint=raw, methods=list(methods)))


def json_route(app: FastAPI, path: str, handler: JsonHandler) -> None:
    """Answer `POST path` with what `handler` makes of the body; 400 when that is no JSON object."""

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            body = json_object(await request.body())
        except ValueError as exc:
            await send_json(send, 400, _invalid(f"{path}: {exc}"))
            return
        answer = await handler(request, body)
        if isinstance(answer, RawReply):
            await send_json(send, 200, answer.body, answer.headers)
        else:
            await send_json(send, 200, answer)

    raw_route(app, path, endpoint)


def json_object(body: bytes) -> dict[str, Any]:
    """Decode a JSON object; an empty body is an empty object.

    Raises `ValueError` for anything else.
    """
    if not body:
        return {}
    value = loads_strictly(body)
    if not isinstance(value, dict):
        raise ValueError(  # noqa: TRY004 - one kind of error for a body that is no JSON object
            f"the body must be a JSON object, not {type(value).__name__}"
        )
    return value


def json_bytes(value: object) -> bytes:
    """Encode `value`; pydantic models are dumped."""
    return dumps(value, _dump)


async def send_json(
    send: Send,
    status: int,
    value: object,
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """Send `value` (JSON, or bytes that are JSON already) as a whole response."""
    body = value if isinstance(value, bytes) else json_bytes(value)
    length = (b"content-length", str(len(body)).encode("ascii"))
    start = {
        "type": "http.response.start",
        "status": status,
        "headers": [_JSON_HEADER, length, *headers],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body})


def _dump(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _invalid(message: str) -> dict[str, object]:
    return {"error": {"type": "invalid_request_error", "message": message}}


class RouteEndpoint:
    """An instance, since Starlette takes a plain function for a request handler.

    It stands in the scope for the route that was found, which Starlette itself does not tell.
    """

    __slots__ = ("_app", "direct", "path")

    def __init__(self, app: ASGIApp, path: str, *, direct: bool = False) -> None:
        self._app = app
        self.path = path
        self.direct = direct

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request."""
        scope["route"] = self
        return self._app(scope, receive, send)
