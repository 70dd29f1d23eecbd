"""Sessions: a signed cookie per server instance, with a `session_id` from the first request on.

State of a rollout lives in the server that made it, keyed by `request.session["session_id"]`; the
cookie carries the id from `/seed_session` to every later call. The cookie's name holds the name of
the instance, because cookies are not told apart by port. The signing key is made when the server
starts: a session means nothing to another process.
"""

import re
import secrets
import uuid

from starlette.middleware.sessions import SessionMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["SESSION_ID_KEY", "session_cookie_name", "with_session"]

SESSION_ID_KEY = "session_id"

# Asked by supervisors, not by rollouts: no session is begun for them.
_WITHOUT_SESSION = frozenset({"/health", "/openapi.json", "/docs"})


def session_cookie_name(server_name: str) -> str:
    """Return `ng_<server name>`, with what a cookie name cannot hold replaced."""
    return "ng_" + re.sub(r"[^A-Za-z0-9_.-]", "_", server_name)


def with_session(app: ASGIApp, server_name: str) -> ASGIApp:
    """Give every request of `app` a `request.session` that holds a session id."""
    return SessionMiddleware(
        _SessionId(app),
        secret_key=secrets.token_hex(32),
        session_cookie=session_cookie_name(server_name),
        max_age=None,
    )


class _SessionId:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = scope.get("session")
        if (
            session is not None
            and SESSION_ID_KEY not in session
            and scope["path"] not in _WITHOUT_SESSION
        ):
            session[SESSION_ID_KEY] = uuid.uuid4().hex
        await self._app(scope, receive, send)
