"""Sessions: a signed cookie per server instance, with a `session_id` from the first request on.

State of a rollout lives in the server that made it, keyed by `request.session["session_id"]`; the
cookie carries the id from `/seed_session` to every later call. The cookie's name holds the name of
the instance, because cookies are not told apart by port. The signing key is made when the server
starts: a session means nothing to another process, and a request with a cookie of another one is
refused. It would begin anew with empty state, and a verifier would judge what is not there.
"""

import re
import secrets
import uuid

from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.servers.raw import send_json

__all__ = ["SESSION_ID_KEY", "session_cookie_name", "with_session"]

SESSION_ID_KEY = "session_id"

# Asked by supervisors, not by rollouts: no session is begun for them.
_WITHOUT_SESSION = frozenset({"/health", "/openapi.json", "/docs"})
_BEGINS = "/seed_session"
# What a client has left of a session that the server took back.
_CLEARED = frozenset({"", "null"})
_LOST = {
    "error": {
        "type": "session_lost",
        "message": "the session is lost: the server has been started again since it began",
    }
}


def session_cookie_name(server_name: str) -> str:
    """Return `ng_<server name>`, with what a cookie name cannot hold replaced."""
    return "ng_" + re.sub(r"[^A-Za-z0-9_.-]", "_", server_name)


def with_session(app: ASGIApp, server_name: str) -> ASGIApp:
    """Give every request of `app` a `request.session` that holds a session id."""
    cookie = session_cookie_name(server_name)
    return SessionMiddleware(
        _SessionId(app, cookie),
        secret_key=secrets.token_hex(32),
        session_cookie=cookie,
        max_age=None,
    )


class _SessionId:
    def __init__(self, app: ASGIApp, cookie: str) -> None:
        self._app = app
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = scope.get("session")
        if (
            session is not None
            and SESSION_ID_KEY not in session
            and scope["path"] not in _WITHOUT_SESSION
        ):
            if scope["path"] != _BEGINS and self._is_lost(scope):
                await send_json(send, 409, _LOST)
                return
            session[SESSION_ID_KEY] = uuid.uuid4().hex
        await self._app(scope, receive, send)

    def _is_lost(self, scope: Scope) -> bool:
        """Say whether the request carries a session that this process did not begin."""
        given = HTTPConnection(scope).cookies.get(self._cookie, "")
        return given not in _CLEARED
