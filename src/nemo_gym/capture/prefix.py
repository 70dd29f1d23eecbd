"""The rollout prefix of a request: taken off the path before anything else looks at it.

An ASGI scope goes in, the scope that the server's own routes know comes out, with the rollout it
belongs to; or the refusal that the client is owed. Works on the raw path, so an encoded slash or
dot never counts as one.
"""

import re
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.errors import InvalidRolloutId
from nemo_gym.ids import RolloutId, split_prefix, with_current_rollout_id
from nemo_gym.telemetry.routes import INNER_SCOPE
from nemo_gym.wire.dialects import DIALECTS, RESPONSES, Dialect, dialect_of_route, error_body

__all__ = [
    "PrefixMiddleware",
    "Refusal",
    "RolloutOfScope",
    "Routed",
    "refuse",
    "route",
    "serve_routed",
]

# The calls of a rollout come at one path, one after the other.
_split_remembered = lru_cache(maxsize=4096)(split_prefix)
_LONGEST_REMEMBERED = 256
_SLASHES = re.compile(rb"/{2,}")

RolloutOfScope = Callable[[Scope], RolloutId | None]
"""Names the rollout of a call that came without a prefix; None leaves it without one."""


class Routed(NamedTuple):
    """A request as the server's own routes know it."""

    scope: Scope
    rollout_id: RolloutId | None
    raw_path: bytes
    """Without the prefix, undecoded, without a query."""


class Refusal(NamedTuple):
    """A request that goes no further."""

    status: int
    body: bytes


def route(scope: Scope, unprefixed: RolloutOfScope | None = None) -> Routed | Refusal:
    """Split the prefix off the path of an HTTP or WebSocket scope.

    A scope that is handed on in place of `scope` is told in it (`INNER_SCOPE`).
    """
    given = _raw_path(scope)
    raw_path = given if given[:2] != b"//" else b"/" + given.lstrip(b"/")
    try:
        short = len(raw_path) <= _LONGEST_REMEMBERED
        rollout_id, rest = _split_remembered(raw_path) if short else split_prefix(raw_path)
    except InvalidRolloutId as error:
        return Refusal(400, error_body(_dialect_in(raw_path), 400, _one_line(error)))
    if b"//" in rest:
        # What a client asks for whose base URL ends in a slash.
        rest = _SLASHES.sub(b"/", rest)
    if rest[-1:] == b"/" and dialect_of_route(rest[:-1]) is not None:
        # Providers answer it like the route itself, so it is one.
        rest = rest[:-1]
    rest = rest or b"/"
    if rest.startswith(b"/v1/v1/"):
        message = "the path has /v1 twice: take /v1 off the end of the client's base URL"
        return Refusal(404, error_body(_dialect_in(rest), 404, message))
    if rollout_id is None and rest == given:
        return Routed(scope, unprefixed(scope) if unprefixed else None, rest)
    routed = {**scope, "path": unquote(rest.decode("latin-1")), "raw_path": rest}
    scope[INNER_SCOPE] = routed
    if rollout_id is None and unprefixed is not None:
        rollout_id = unprefixed(scope)
    return Routed(routed, rollout_id, rest)


class PrefixMiddleware:
    """Takes the prefix off and carries the rollout id; captures nothing."""

    def __init__(self, app: ASGIApp, *, unprefixed: RolloutOfScope | None = None) -> None:
        self.app = app
        self._unprefixed = unprefixed

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request; every other kind of scope passes through."""
        if scope["type"] not in {"http", "websocket"}:
            return self.app(scope, receive, send)
        routed = route(scope, self._unprefixed)
        if isinstance(routed, Refusal):
            return refuse(scope, send, routed)
        return serve_routed(self.app, routed, receive, send)


async def serve_routed(app: ASGIApp, routed: Routed, receive: Receive, send: Send) -> None:
    """Have the app serve the request, as one of its rollout."""
    with with_current_rollout_id(routed.rollout_id):
        await app(routed.scope, receive, send)


async def refuse(scope: Scope, send: Send, refusal: Refusal) -> None:
    """Answer with the refusal."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": ""})
        return
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(refusal.body)).encode()),
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    body = b"" if scope["method"] == "HEAD" else refusal.body
    await send({"type": "http.response.body", "body": body})


def _raw_path(scope: Scope) -> bytes:
    raw = scope.get("raw_path")
    if isinstance(raw, bytes):
        return raw.partition(b"?")[0]
    return quote(scope["path"], safe="/:@!$&'()*+,;=-._~").encode("ascii")


def _dialect_in(path: bytes) -> Dialect:
    """Return the dialect that a client at this path speaks, as far as the path tells."""
    return next((dialect for dialect in DIALECTS if dialect.route in path), RESPONSES)


def _one_line(error: InvalidRolloutId) -> str:
    return f"{error.what}: {error.mend}" if error.mend else error.what
