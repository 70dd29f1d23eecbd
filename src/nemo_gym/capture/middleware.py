"""The part of a model server's stack that knows rollouts: prefix off, calls captured.

ASGI messages pass through unchanged and in order. The one that would let a client finish is held
until the call's row is durable or has failed; nothing else is held. One row a call, whatever the
client does. A failure of capture is logged and never reaches the call.

What is held for an end that does not come is passed on after a while (`ERROR_GRACE_S`,
`EVENT_GRACE_S`); the row is written before that, with what has come.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.capture.exchange import exchange_line
from nemo_gym.capture.facts import CALL_FACTS, CLIENT_WENT_AWAY, SERVER_STOPPING, CallFacts
from nemo_gym.capture.plain_line import plain_line
from nemo_gym.capture.prefix import (
    PrefixMiddleware,
    Refusal,
    RolloutOfScope,
    refuse,
    route,
    serve_routed,
)
from nemo_gym.capture.row import Claim, Row, RowStore
from nemo_gym.capture.stopping import stopped_response
from nemo_gym.capture.tap import DEFAULT_BODY_LIMIT, Request, Verdict
from nemo_gym.capture.watch import CallWatch
from nemo_gym.ids import CURRENT_ROLLOUT, RolloutId
from nemo_gym.telemetry.routes import INNER_SCOPE
from nemo_gym.wire.dialects import Dialect, dialect_of_route

__all__ = [
    "ERROR_GRACE_S",
    "EVENT_GRACE_S",
    "CaptureMiddleware",
    "CaptureSettings",
    "Timer",
    "model_call_stack",
]

logger = logging.getLogger(__name__)

ERROR_GRACE_S = 0.2
"""How long an error is held inside a stream, since a terminal event may follow it."""
EVENT_GRACE_S = 2.0
"""How long a last event is held that has begun, after the last of its bytes came."""

_READ_S = 0.01

_CLIENT_GONE: Message = {"type": "http.disconnect"}
_SEND, _COMMIT = Verdict.SEND, Verdict.COMMIT
_GRACE_S = {Verdict.HOLD: EVENT_GRACE_S, Verdict.HOLD_BRIEFLY: ERROR_GRACE_S}


# Drawn many at a time: one call for each id costs 3 us among other work.
_ids: list[str] = []
_DRAWN = 64


def _new_id() -> str:
    try:
        return _ids.pop()
    except IndexError:
        drawn = os.urandom(16 * _DRAWN).hex()
        _ids.extend(drawn[at : at + 32] for at in range(32, len(drawn), 32))
        return drawn[:32]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.clear)


class _Sent:
    """What is awaited where there is nothing to wait for."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


_SENT = _Sent()


class Timer(Protocol):
    """A callback that is due."""

    def cancel(self) -> None:
        """Do not call it; without effect once it was called."""
        ...


class _AfterReading:
    """A timer that never goes off before what has come was read.

    A loop that was held for longer than the delay finds its timers due, and runs them before it
    looks at its sockets; by a second, short one it has.
    """

    __slots__ = ("_callback", "_handle", "_loop")

    def __init__(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._callback = callback
        self._handle = self._loop.call_later(delay_s, self._due)

    def cancel(self) -> None:
        self._handle.cancel()

    def _due(self) -> None:
        self._handle = self._loop.call_later(_READ_S, self._callback)


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """What capturing a call needs besides the call."""

    store: RowStore
    model_ref_name: str
    """Instance name of the model server, as stored in every row."""
    body_limit: int = DEFAULT_BODY_LIMIT
    """Most bytes kept of one body, after decompression."""
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """What the server must keep secret: no id that a client gives its session may tell it."""
    clock: Callable[[], float] = time.monotonic
    """Seconds that only ever rise."""
    wall_clock: Callable[[], float] = time.time
    """UTC Unix seconds."""
    new_id: Callable[[], str] = _new_id
    """A `model_call_id` that was never given before."""
    call_later: Callable[[float, Callable[[], None]], Timer] = _AfterReading
    """Has a callback called after so many seconds, and after what has come by then was read."""


def model_call_stack(
    app: ASGIApp,
    *,
    store: RowStore | None,
    model_ref_name: str,
    unprefixed: RolloutOfScope | None = None,
    body_limit: int = DEFAULT_BODY_LIMIT,
    secrets: frozenset[str] = frozenset(),
) -> ASGIApp:
    """Wrap the app of a model server, inside its disconnect guard.

    `store` None is capture off. `model_ref_name` is the instance name of the model server, as
    stored in every row. `unprefixed` names the rollout of calls that come without a prefix; by
    default they are forwarded and not captured. `body_limit`: most bytes kept of one body.
    `secrets`: what the server must keep secret; an id of the client's that tells one is not kept.
    """
    if store is None:
        return PrefixMiddleware(app, unprefixed=unprefixed)
    settings = CaptureSettings(store, model_ref_name, body_limit, secrets)
    return CaptureMiddleware(app, settings, unprefixed=unprefixed)


class CaptureMiddleware:
    """Takes the prefix off, and captures the prefixed calls to the three model routes."""

    def __init__(
        self, app: ASGIApp, settings: CaptureSettings, *, unprefixed: RolloutOfScope | None = None
    ) -> None:
        self.app = app
        self._settings = settings
        self._unprefixed = unprefixed

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request; every other kind of scope passes through."""
        if scope["type"] not in {"http", "websocket"}:
            return self.app(scope, receive, send)
        routed = route(scope, self._unprefixed)
        if isinstance(routed, Refusal):
            return refuse(scope, send, routed)
        dialect = dialect_of_route(routed.raw_path) if scope["type"] == "http" else None
        if routed.rollout_id is None or dialect is None:
            return serve_routed(self.app, routed, receive, send)
        call = _CapturedCall(self._settings, routed.rollout_id, receive, send)
        inner = routed.scope
        if inner is scope:
            inner = scope[INNER_SCOPE] = {**scope}
        return call.run(self.app, dialect, inner)


class _CapturedCall:
    """One call on its way through, and then what its row is made of."""

    __slots__ = (
        "_awaited",
        "_claim",
        "_ended_at",
        "_facts",
        "_held",
        "_raised",
        "_receive",
        "_release",
        "_send",
        "_settings",
        "_settled",
        "_timer",
        "_watch",
        "rollout_id",
    )

    _watch: CallWatch
    _claim: Claim

    def __init__(
        self, settings: CaptureSettings, rollout_id: RolloutId, receive: Receive, send: Send
    ) -> None:
        self._settings = settings
        self.rollout_id = rollout_id
        self._receive = receive
        self._send = send
        self._facts = CallFacts()
        self._held: list[Message] = []
        """Messages that wait, in order. Not empty as long as anybody but the app sends them."""
        self._timer: Timer | None = None
        """Due when they have waited for long enough."""
        self._awaited = _SEND
        """The verdict that it was set for."""
        self._release: asyncio.Task[None] | None = None
        """Sends what was held, once waiting was given up."""
        self._settled = False
        """Whether the call was handed over, or is known to be lost."""
        self._ended_at = 0.0
        self._raised = False

    async def run(self, app: ASGIApp, dialect: Dialect, scope: Scope) -> None:
        """Let the app serve the call; `scope` is nobody else's."""
        # Not before: a task that is cancelled before its first step never gets here.
        self._claim = self._settings.store.claim(self.rollout_id)
        self._begin(dialect, scope)
        given = scope.get("extensions")
        extensions = {**given, CALL_FACTS: self._facts} if given else {CALL_FACTS: self._facts}
        scope["extensions"] = extensions
        token = CURRENT_ROLLOUT.set(self.rollout_id)
        try:
            await app(scope, self.receive, self.send)
        except asyncio.CancelledError as cancelled:
            if cancelled.args == (CLIENT_WENT_AWAY,):
                await self._leave()
            else:
                await self._stop(dialect)
            raise
        except BaseException:
            self._raised = True
            await self._commit()
            await self._send_held()
            raise
        else:
            if not self._settled:
                await self._commit()
            if self._held:
                await self._send_held()
        finally:
            CURRENT_ROLLOUT.reset(token)

    async def receive(self) -> Message:
        """Give the app the next message of the client, and look at it."""
        message = await self._receive()
        if not self._settled:
            self._see(message)
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Pass a message of the app on, now or once the row is durable."""
        verdict = _SEND
        if not self._settled:
            try:
                watch, kind = self._watch, message["type"]
                if kind == "http.response.body":
                    body, more = message.get("body", b""), message.get("more_body", False)
                    # The chunks of a stream are many, so they have a way without detours.
                    if more and watch.passes(body):
                        return (
                            self._send(message)
                            if not self._held
                            else self._send_in_turn(message, _SEND)
                        )
                    verdict = watch.response_body(body, more, self._settings.clock())
                elif kind == "http.response.start":
                    verdict = watch.response_start(
                        message["status"],
                        list(message.get("headers", ())),
                        self._settings.clock(),
                        body_follows=self._facts.body_follows,
                    )
            except Exception as error:  # noqa: BLE001 - capture never fails a call
                self._lose(error)
        if self._facts.body_follows:
            self._facts.body_follows = False  # said of this message, the head, and of no other
            if not (self._settled or self._held) and verdict is _SEND:
                self._held.append(message)
                return _SENT
        if verdict is _SEND and not self._held:
            return self._send(message)
        return self._send_in_turn(message, verdict)

    async def _send_in_turn(self, message: Message, verdict: Verdict) -> None:
        if verdict is _SEND:
            self._awaits(_SEND)
            await self._send_held()
            await self._send(message)
            return
        self._held.append(message)
        if verdict is _COMMIT:
            # Not by `_commit` and `_send_held`: every call comes by, and nobody else sends yet.
            kept = self._hand_over()
            if kept is not None:
                await kept
            while self._held:
                await self._send(self._held.pop(0))
        else:
            self._awaits(verdict)

    def _awaits(self, verdict: Verdict) -> None:
        """Wait for what a verdict holds messages for, and not for what was waited for before.

        More of an event that has begun begins the wait anew, more pings after an error do not.
        """
        if verdict is self._awaited is Verdict.HOLD_BRIEFLY:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._awaited = verdict
        if verdict in _GRACE_S:
            self._timer = self._settings.call_later(_GRACE_S[verdict], self._give_up)

    def _give_up(self) -> None:
        """Wait no longer: the row is what has come; what is held goes on once it is durable."""
        if self._settled:
            return
        self._facts.notes["end_not_awaited"] = _GRACE_S[self._awaited]
        kept = self._hand_over()
        self._release = asyncio.get_running_loop().create_task(self._let_go(kept))

    async def _let_go(self, kept: "asyncio.Future[Exception | None] | None") -> None:
        if kept is not None:
            await kept
        while self._held:
            try:
                await self._send(self._held[0])
            finally:
                del self._held[0]

    async def _leave(self) -> None:
        """End with a client that went away."""
        if not self._settled:
            self._see(_CLIENT_GONE)
        if self._release is not None:
            self._release.cancel()
        await self._commit()

    async def _stop(self, dialect: Dialect) -> None:
        """End with this server; the client is still there."""
        try:
            if self._settled:
                # Cut off in a wait for its row: what it held must not go out before that, but for
                # the head of what follows, which nobody takes for a response.
                if self._release is not None:
                    await self._release
                elif len(self._held) > 1 and self._held[0]["type"] == "http.response.start":
                    await self._send(self._held.pop(0))
            elif self._watch.has_begun:
                self._facts.notes[SERVER_STOPPING] = True
                self._raised = True
                await self._commit()
                await self._send_held()
            else:
                self._facts.source, self._facts.local_reason = "local", SERVER_STOPPING
                for message in stopped_response(dialect, self._settings.model_ref_name):
                    await self.send(message)
        finally:
            self._hand_over()  # where this, too, was cancelled

    def _begin(self, dialect: Dialect, scope: Scope) -> None:
        settings = self._settings
        try:
            self._watch = CallWatch(
                Request(
                    dialect,
                    scope["method"],
                    list(scope["headers"]),
                    scope.get("query_string", b""),
                ),
                started_at=settings.wall_clock(),
                now=settings.clock(),
                body_limit=settings.body_limit,
            )
        except Exception as error:  # noqa: BLE001 - capture never fails a call
            self._lose(error)

    def _see(self, message: Message) -> None:
        """Look at a message of the client; when that fails the call goes on without capture."""
        try:
            if message["type"] == "http.request":
                self._watch.request_body(message.get("body", b""))
                self._facts.request_open = message.get("more_body", False)
            elif message["type"] == "http.disconnect":
                self._watch.client_gone(self._settings.clock())
        except Exception as error:  # noqa: BLE001 - capture never fails a call
            self._lose(error)

    async def _commit(self) -> None:
        """Hand the call over, and wait until its row is durable or has failed."""
        kept = self._hand_over()
        if kept is not None:
            await kept

    def _hand_over(self) -> "asyncio.Future[Exception | None] | None":
        """Hand the call over, once, and return what ends when its row is durable or has failed."""
        if self._settled:
            return None
        if self._timer is not None:
            self._timer.cancel()
        settings = self._settings
        try:
            self._ended_at = settings.clock()
        except Exception as error:  # noqa: BLE001 - capture never fails a call
            self._lose(error)
            return None
        self._settled = True
        # Cancelling this wait takes nothing back: the call is the store's now.
        return settings.store.keep(self, self._claim)

    def row(self) -> Row:
        """Make the row; the store's business, since nothing is done with the call any more."""
        settings = self._settings
        model_call_id, name = settings.new_id(), settings.model_ref_name
        watch, facts, ended_at = self._watch, self._facts, self._ended_at
        plain = watch.plain_call(ended_at)
        line = None if plain is None else plain_line(plain, facts, model_call_id, name)
        if line is None:
            tapped = watch.finish(ended_at, raised=self._raised)
            line = exchange_line(
                tapped,
                facts,
                model_call_id=model_call_id,
                model_ref_name=name,
                secrets=settings.secrets,
            )
        return Row(self.rollout_id, model_call_id, line)

    async def _send_held(self) -> None:
        """Send what is held, after everything that is being sent."""
        if self._release is not None:
            await asyncio.shield(self._release)
        while self._held:
            await self._send(self._held.pop(0))

    def _lose(self, error: Exception) -> None:
        """Give the row up: the call goes on as without capture, the rollout is marked."""
        self._settled = True
        logger.error("capture: a call of rollout %s is lost", self.rollout_id, exc_info=error)
        # No more than the kind of error: its text may hold a piece of the call.
        reason = type(error).__name__
        self._settings.store.mark_incomplete(self.rollout_id, reason, self._claim)
