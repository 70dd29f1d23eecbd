"""A model server alone: any agent outside Gym points its base URL here, and its calls are captured.

What comes under `/ng-rollout/<id>/` belongs to that rollout. Every other call gets the id of the
client's own session, where it sends one, or one for the process.
"""

import re
from hashlib import blake2b

from starlette.types import Receive, Scope, Send

from nemo_gym.capture.client_ids import client_session_id
from nemo_gym.capture.middleware import model_call_stack
from nemo_gym.capture.prefix import RolloutOfScope
from nemo_gym.capture.stopping import stopped_calls
from nemo_gym.capture.store import CaptureStore
from nemo_gym.capture.tap import DEFAULT_BODY_LIMIT
from nemo_gym.errors import ConfigMistake
from nemo_gym.ids import RolloutId, parse_rollout_id
from nemo_gym.servers.forward import Forwarder
from nemo_gym.servers.forward_headers import hide_key
from nemo_gym.servers.guard import DisconnectGuard
from nemo_gym.servers.provider import Key, Provider
from nemo_gym.servers.wall import FailureWall
from nemo_gym.transport.address import AddressInvalid, parse_address
from nemo_gym.wire.dialects import DIALECTS, RESPONSES, error_body

__all__ = ["CaptureServer", "provider_at", "session_rollout"]

_NAME = "capture_serve"
# `0-3`, `0-3-a1`, `named-a1`: what rollouts of a run and their attempts are called.
_OF_A_RUN = re.compile(r"[0-9]+-[0-9]+|.*-a[0-9]{1,4}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class CaptureServer:
    """An ASGI app: failure wall, guard, capture, forwarder; plus `GET /health`.

    `body_limit`: most bytes kept of one body, after decompression.
    """

    def __init__(
        self,
        forwarder: Forwarder,
        store: CaptureStore,
        process_id: RolloutId,
        *,
        body_limit: int = DEFAULT_BODY_LIMIT,
    ) -> None:
        self._forwarder = forwarder
        secrets = forwarder.provider.secrets
        stack = model_call_stack(
            self._answer,
            store=store,
            model_ref_name=_NAME,
            unprefixed=session_rollout(process_id, secrets),
            body_limit=body_limit,
            secrets=secrets,
        )
        guarded = DisconnectGuard(stack)
        self._app = FailureWall(guarded, self._failed, _NAME, stopped_calls(_NAME))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; the lifespan closes the connections to the provider."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await self._app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose prefix, if it had one, was taken off."""
        if scope["path"] == "/health":
            await _healthy(send)
        else:
            await self._forwarder.forward(scope, receive, send)

    def _failed(self, path: str, error: BaseException) -> tuple[int, object]:
        dialect = next((d for d in DIALECTS if d.route.decode() in path), RESPONSES)
        said = error_body(dialect, 500, f"{type(error).__name__}: {error}")
        return 500, hide_key(said, self._forwarder.provider)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self._forwarder.aclose()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return


def session_rollout(process_id: RolloutId, secrets: frozenset[str]) -> RolloutOfScope:
    """Return what names the rollout of a call without a prefix: its session, else `process_id`.

    The name of a file is no place for a key: a session that tells one of `secrets`, or a credential
    of its call, is none.
    """

    def name(scope: Scope) -> RolloutId | None:
        session = client_session_id(scope["headers"], scope.get("query_string", b""), secrets)
        if session is None:
            return process_id
        # A session id is the client's own text; what a file name cannot hold is replaced.
        safe = _UNSAFE.sub("-", session).lstrip("._-")[:180]
        if not safe:
            return process_id
        digest = blake2b(session.encode(), digest_size=4).hexdigest()
        if _OF_A_RUN.fullmatch(safe) or safe == process_id:
            # A rollout and a stranger's session must not share a file.
            return parse_rollout_id(f"session-{safe}-{digest}")
        # Nor two sessions because of what was replaced.
        return parse_rollout_id(safe if safe == session else f"{safe}-{digest}")

    return name


async def _healthy(send: Send) -> None:
    body = b'{"status":"ok"}'
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def provider_at(url: str, key: str | None) -> Provider:
    """Return a provider that may speak every dialect; raises `ConfigMistake` for a bad URL.

    A key travels as a bearer token, to Anthropic as `x-api-key`.
    """
    try:
        address = parse_address(url)
    except AddressInvalid as problem:
        raise ConfigMistake(str(problem), where="--upstream", mend="give http(s)://HOST") from None
    anthropic = "anthropic" in address.origin
    chosen = Key.x_api_key(key) if anthropic else Key.bearer(key)
    return Provider((address,), tuple(d.name for d in DIALECTS), chosen)
