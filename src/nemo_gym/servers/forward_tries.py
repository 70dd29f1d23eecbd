"""Asking a provider, again where that may help, until an answer is worth passing on.

An answer is handed over once its first body bytes have come, so that a provider that fails before
can be asked again or reported in the client's dialect. Of a JSON body, which no client can use in
part, all is awaited as long as it keeps coming; an error that is not asked for again is held until
it is whole, so that secrets in it can be found. A stream passes at once.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from nemo_gym.capture.body import BodyTap
from nemo_gym.capture.facts import CallFacts, UpstreamAttempt
from nemo_gym.errors import ConnectFailed, ReplyInvalid, TransportError
from nemo_gym.servers.forward_headers import header
from nemo_gym.transport.base import Call, Reply, Transport
from nemo_gym.transport.retry import RetryRule, retry_after_s
from nemo_gym.wire.encoding import parse_encodings
from nemo_gym.wire.stream import looks_like_events

__all__ = ["Answered", "ProviderCaller", "Unanswered", "Way", "legible"]

# A JSON body that comes slower is passed on as it comes: some providers send blanks in between so
# that the connection stays alive.
_SETTLE_S = 1.0
_SETTLE_BYTES = 1 << 20
_PARTIAL_BYTES = 1 << 16
"""What is kept of a body that nobody gets."""
_STATUSES = range(200, 600)
# Whoever answers so has not begun.
_UNTOUCHED = frozenset((429, 503, 529))


Way = tuple[Transport, Call]
"""A transport to one replica of a provider, and the call as it goes there."""


@dataclass(slots=True)  # not frozen: that costs every call
class Answered:
    """A provider's answer, of which `begun` has been read already."""

    reply: Reply
    begun: bytes


class Unanswered(Exception):
    """No try ended in an answer; `problem` is what became of the last one."""

    def __init__(self, problem: TransportError, tries: int, took_s: float, partial: bytes) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.tries = tries
        self.took_s = took_s
        self.partial = partial
        """What had come of its body, as `legible` tells it."""


@dataclass(frozen=True, slots=True)
class ProviderCaller:
    """Asks a provider by one rule. Clock, chance and sleep can be handed in."""

    rule: RetryRule
    now: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    held_s: float = 30.0
    """How long the end of an error is awaited, in seconds."""
    held_bytes: int = 4 << 20
    """How much of an error is held."""

    async def ask(
        self,
        ways: Sequence[Way],
        facts: CallFacts | None = None,
        *,
        came: list[bytes] | None = None,
        retried: Callable[[str], None] | None = None,
    ) -> Answered:
        """Return an answer, whatever its status, or raise `Unanswered`.

        Tries take the `ways` in turn. The caller closes the reply. Each try is noted in `facts`;
        `retried` hears why before each further one: a status, or the class of an error. A caller
        that is cancelled finds in `came` what is `legible` of the last try's body.
        """
        began, tries, pieces = time.monotonic(), 0, [] if came is None else came
        while True:
            transport, call = ways[tries % len(ways)]
            tries += 1
            pieces.clear()
            answered, problem = None, None
            try:
                answered = await self._try(transport, call, facts, pieces)
            except TransportError as failure:
                problem = failure
            if answered is not None and not self.rule.retries(answered.reply.status):
                if 200 <= answered.reply.status < 400:
                    return answered
                return await self._held(answered.reply, pieces, facts, tries, began)
            elapsed_s = time.monotonic() - began
            wait_s = None
            if _is_worth_another(call, answered, problem, last_way=tries >= len(ways)):
                wait_s = self._wait_s(tries, elapsed_s, answered)
            if wait_s is None:
                if answered is not None:
                    return await self._held(answered.reply, pieces, facts, tries, began)
                partial = b"".join(pieces)
                try:
                    raise Unanswered(_known(problem), tries, elapsed_s, partial) from problem
                finally:
                    del problem  # its traceback holds this frame
            if retried is not None:
                retried(str(answered.reply.status) if answered else type(problem).__name__)
            if answered is not None:
                pieces[:] = [legible(answered.reply, pieces)]
                await answered.reply.aclose()
            await self.sleep(wait_s)

    def _wait_s(self, tries: int, elapsed_s: float, answered: Answered | None) -> float | None:
        """Return how long to wait before the next try; None: there is to be none."""
        return self.rule.wait_s(
            tries=tries,
            elapsed_s=elapsed_s,
            jitter=self.chance(),
            asked_s=retry_after_s(answered.reply.headers, self.now()) if answered else None,
        )

    async def _held(
        self, reply: Reply, pieces: list[bytes], facts: CallFacts | None, tries: int, began: float
    ) -> Answered:
        """Return an error, of which `pieces` came, as a whole or what comes within the bounds.

        Raises `Unanswered` for one that breaks off, and for a status that no server can pass on.
        """
        if reply.status not in _STATUSES:
            await reply.aclose()
            problem = ReplyInvalid(f"its status is {reply.status}, which is none of HTTP")
            raise Unanswered(problem, tries, time.monotonic() - began, legible(reply, pieces))
        if not reply.ended and reply.status >= 400:
            try:
                await _read_on(reply, pieces, self.held_s, self.held_bytes)
            except BaseException as failure:
                if facts is not None:
                    facts.attempts[-1].error = f"{type(failure).__name__}: {failure}".rstrip(": ")
                pieces[:] = [legible(reply, pieces)]
                await reply.aclose()
                if not isinstance(failure, TransportError):
                    raise
                took_s = time.monotonic() - began
                raise Unanswered(failure, tries, took_s, b"".join(pieces)) from failure
        return Answered(reply, b"".join(pieces))

    async def _try(
        self, transport: Transport, call: Call, facts: CallFacts | None, pieces: list[bytes]
    ) -> Answered:
        """Try once; body bytes are added to `pieces` as they come."""
        attempt = UpstreamAttempt(self.now())
        if facts is not None:
            facts.attempts.append(attempt)
        started = time.monotonic()
        reply = None
        try:
            reply = await transport.send(call)
            attempt.ms = (time.monotonic() - started) * 1000
            attempt.status = reply.status
            if not reply.ended:
                await _begin(reply, pieces)
        except BaseException as failure:
            if attempt.ms is None:
                attempt.ms = (time.monotonic() - started) * 1000
            attempt.error = f"{type(failure).__name__}: {failure}".rstrip(": ")
            if reply is not None:
                pieces[:] = [legible(reply, pieces)]
                await reply.aclose()
            raise
        finally:
            if facts is not None and call.replaced:
                facts.notes["connections_replaced"] = call.replaced
        return Answered(reply, pieces[0] if len(pieces) == 1 else b"".join(pieces))


async def _begin(reply: Reply, pieces: list[bytes]) -> None:
    """Read so much of the body as must be known before any of it is passed on."""
    pieces.append(await reply.chunk())
    if reply.ended:
        return
    is_error = reply.status >= 400
    kind = b"" if is_error else header(reply.headers, b"content-type") or b""
    if is_error or kind.startswith(b"application/json"):
        await _read_on(reply, pieces, _SETTLE_S, _SETTLE_BYTES, or_events=not is_error)


async def _read_on(
    reply: Reply,
    pieces: list[bytes],
    most_s: float,
    most_bytes: int,
    *,
    or_events: bool = False,
) -> None:
    """Add to `pieces` what comes, up to the end or to one of the bounds.

    `or_events`: it may be a stream that is called something else, and then it is not held.
    """
    size = sum(map(len, pieces))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(most_s):
            while size < most_bytes:
                if or_events:
                    is_stream = looks_like_events(b"".join(pieces), last=False)
                    if is_stream:
                        return
                    or_events = is_stream is None
                piece = await reply.chunk()
                if not piece:
                    return
                pieces.append(piece)
                size += len(piece)


def legible(reply: Reply, pieces: Sequence[bytes]) -> bytes:
    """Return what can be read of a body that nobody gets: unpacked, at most 64 KB."""
    if not any(pieces):
        return b""
    named = [value for name, value in reply.headers if name == b"content-encoding"]
    body = BodyTap(parse_encodings(named), _PARTIAL_BYTES)
    for piece in pieces:
        body.add(piece)
    kept = body.result()
    return kept.data or kept.undecodable or b""


def _is_worth_another(
    call: Call, answered: Answered | None, problem: TransportError | None, *, last_way: bool
) -> bool:
    """Say whether a try after this one may help, and does no harm.

    A call that must not be made twice is repeated where surely nothing was done at the provider.
    """
    if problem is not None and problem.lasting and last_way:
        return False
    if not call.once:
        return True
    if answered is not None:
        return answered.reply.status in _UNTOUCHED
    return isinstance(problem, ConnectFailed)


def _known(problem: TransportError | None) -> TransportError:
    return problem if problem is not None else TransportError("no answer")
