"""Which rollout a request belongs to, for agents and resources servers.

Comes in: `/ng-rollout/<id>/…` paths, and the body of `/run` with its `_ng_*` keys. Goes out: the
current rollout of `nemo_gym.ids` for everything the handler awaits. An id outside the grammar is
answered 400 here, before the app sees the request.
"""

from collections.abc import Iterable

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.errors import InvalidRolloutId
from nemo_gym.ids import (
    ATTEMPT_INDEX_KEY,
    ROLLOUT_ID_KEY,
    ROLLOUT_INDEX_KEY,
    TASK_INDEX_KEY,
    RolloutId,
    rollout_id_of_record,
    split_prefix,
    with_current_rollout_id,
)
from nemo_gym.servers.raw import send_json
from nemo_gym.telemetry.routes import INNER_SCOPE

__all__ = ["RolloutContext", "raw_path_of"]


class _RunKeys(msgspec.Struct):
    """The keys that name the rollout; everything else of the body is skipped, not decoded."""

    task: object = msgspec.field(name=TASK_INDEX_KEY, default=None)
    rollout: object = msgspec.field(name=ROLLOUT_INDEX_KEY, default=None)
    attempt: object = msgspec.field(name=ATTEMPT_INDEX_KEY, default=None)
    explicit: object = msgspec.field(name=ROLLOUT_ID_KEY, default=None)


_RUN_KEYS = msgspec.json.Decoder(_RunKeys)


class RolloutContext:
    """ASGI middleware that sets the current rollout.

    `strip` removes the prefix from the path: for servers that have no prefixed routes of their own.
    """

    def __init__(self, app: ASGIApp, *, strip: bool) -> None:
        self.app = app
        self.strip = strip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; every other kind of scope passes through."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        raw_path = raw_path_of(scope)
        try:
            rollout_id, rest = split_prefix(raw_path)
            if raw_path == b"/run":
                messages = await _whole_body(receive)
                receive = _replay(messages, receive)
                rollout_id = _rollout_of(messages)
        except InvalidRolloutId as exc:
            await send_json(
                send, 400, {"error": {"type": "invalid_request_error", "message": str(exc)}}
            )
            return
        if rollout_id is None:
            await self.app(scope, receive, send)
            return
        if self.strip and rest != raw_path:
            # The prefix is plain ASCII, so it is as long in the decoded path as in the raw one.
            path = scope["path"][len(raw_path) - len(rest) :]
            inner = {**scope, "raw_path": rest, "path": path}
            scope[INNER_SCOPE] = inner
            scope = inner
        with with_current_rollout_id(rollout_id):
            await self.app(scope, receive, send)


def raw_path_of(scope: Scope) -> bytes:
    """Return the undecoded path; some test clients leave it out of the scope."""
    raw_path = scope.get("raw_path")
    if isinstance(raw_path, bytes):
        return raw_path.partition(b"?")[0]
    return str(scope["path"]).encode()


def _rollout_of(messages: Iterable[Message]) -> RolloutId | None:
    body = b"".join(message.get("body", b"") for message in messages)
    try:
        keys = _RUN_KEYS.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return None  # the route says what is wrong with the body
    return rollout_id_of_record(
        {
            TASK_INDEX_KEY: keys.task,
            ROLLOUT_INDEX_KEY: keys.rollout,
            ATTEMPT_INDEX_KEY: keys.attempt,
            ROLLOUT_ID_KEY: keys.explicit,
        }
    )


async def _whole_body(receive: Receive) -> list[Message]:
    """Return the messages of the body; the last one may be a disconnect."""
    messages = [await receive()]
    while messages[-1]["type"] == "http.request" and messages[-1].get("more_body", False):
        messages.append(await receive())
    return messages


def _replay(messages: list[Message], receive: Receive) -> Receive:
    waiting = iter(messages)

    async def replayed() -> Message:
        message = next(waiting, None)
        return await receive() if message is None else message

    return replayed
