"""From a model route to a provider that speaks the same dialect: bytes pass as they come.

A raw ASGI request goes in, the provider's answer goes out, JSON or SSE, chunk by chunk. What is
changed on the way: the `model` in the request, credentials, hop-by-hop headers. What fails before
the answer began is told in the client's dialect; what breaks after breaks the client's connection
too, since an orderly end would be a lie.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from nemo_gym.capture.facts import CALL_FACTS, CallFacts
from nemo_gym.errors import CallTimeout, TransportError
from nemo_gym.ids import current_rollout_id
from nemo_gym.servers.context import raw_path_of
from nemo_gym.servers.forward_body import BodyTooLarge, Members, decoded, encodings
from nemo_gym.servers.forward_errors import freed, hidden_beginning
from nemo_gym.servers.forward_headers import content_encoding, response_headers
from nemo_gym.servers.forward_paths import dialect_under, may_be_repeated
from nemo_gym.servers.forward_refusals import Refusal, not_answered, refusal_for
from nemo_gym.servers.forward_replicas import Replica, in_turn
from nemo_gym.servers.forward_timing import CallTiming, call_names, timed_call
from nemo_gym.servers.forward_tries import Answered, ProviderCaller, Unanswered, Way, legible
from nemo_gym.servers.guard import DisconnectGuard
from nemo_gym.servers.provider import Provider
from nemo_gym.servers.raw import RawRoute
from nemo_gym.telemetry.ended_calls import Names
from nemo_gym.telemetry.tracing import carry, tracer
from nemo_gym.transport.base import Call, RawHeaders, Transport
from nemo_gym.transport.http import HttpTransport
from nemo_gym.transport.stepping import stepped
from nemo_gym.wire.dialects import (
    DIALECTS,
    MESSAGES,
    Dialect,
    dialect_named,
    dialect_of_route,
)

__all__ = ["Forwarder"]

_LOG = logging.getLogger(__name__)
_ALL_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_JSON: RawHeaders = [(b"content-type", b"application/json")]


@dataclass(slots=True)  # not frozen: that costs a call a microsecond
class _Request:
    """One client's request, as far as forwarding is concerned."""

    method: str
    path: bytes
    """Undecoded, without rollout prefix and query."""
    query: bytes
    headers: RawHeaders
    body: bytes
    dialect: Dialect
    """In which errors are told."""
    is_model_call: bool
    facts: CallFacts | None


class Forwarder:
    """Forwards the model routes of one server to one provider.

    `routes()` go into a server's stack, whose disconnect guard cancels a call when its client goes
    away; the forwarder itself is an ASGI app that brings a guard of its own.
    """

    def __init__(
        self,
        provider: Provider,
        *,
        transports: Sequence[Transport] | None = None,
        caller: ProviderCaller | None = None,
    ) -> None:
        self.provider = provider
        if transports is None:
            transports = [HttpTransport(a, limits=provider.limits) for a in provider.addresses]
        pairs = zip(provider.addresses, transports, strict=True)
        self._replicas = [Replica(provider, address, transport) for address, transport in pairs]
        self._caller = caller or ProviderCaller(provider.retry)
        model = provider.members.always.get("model")
        self._model_only = Members({} if model is None else {"model": model})
        self._model_name = None if model is None else str(orjson.loads(model))
        self._names: dict[str, Names] = {}
        """By dialect, where the model is configured and each call the same."""
        self._neutral = cast("Dialect", dialect_named(provider.dialects[0]))
        self._guarded = DisconnectGuard(self.forward)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request by itself, outside any stack."""
        if scope["type"] == "http":
            await self._guarded(scope, receive, send)

    def routes(self) -> list[RawRoute]:
        """Return the routes of a model server, those included that only explain themselves."""
        paths = [dialect.route.decode() for dialect in DIALECTS]
        paths += [f"{path}/{{rest:path}}" for path in paths]
        paths += [path.removeprefix("/v1") for path in paths[:3]]
        paths += ["/v1/models", "/v1/{rest:path}"]
        app: ASGIApp = self.forward
        return [RawRoute(path, app, _ALL_METHODS) for path in paths]

    async def aclose(self) -> None:
        """Close the connections to the provider."""
        for replica in self._replicas:
            await replica.transport.aclose()

    async def fetch(self, dialect: Dialect, body: bytes) -> tuple[int, RawHeaders, bytes]:
        """Ask the provider for one model call and return status, headers and whole body.

        For callers in this process; raises `Unanswered`, or `TransportError` for half an answer.
        """
        request = _Request("POST", dialect.route, b"", _JSON, body, dialect, True, None)
        ways = self._ways(request)
        with self._timed(request) as timing:
            _put_span(ways, timing)
            answered = await self._caller.ask(ways, retried=timing.retried)
            timing.answered_by(answered.reply, answered.begun)
            try:
                rest = await answered.reply.read()
            finally:
                await answered.reply.aclose()
            timing.passed(rest)
            timing.all_passed()
        status, headers = answered.reply.status, answered.reply.headers
        whole = answered.begun + rest
        if self.provider.secrets:
            headers, whole, _ = freed(status, headers, whole, self.provider, dialect, whole=True)
        return status, headers, whole

    async def forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request with what the provider answers."""
        path = raw_path_of(scope)
        exact = dialect_of_route(path)
        body = await _body(receive)
        if body is None:
            return  # the client went away before it had asked
        request = _Request(
            method=scope["method"],
            path=path,
            query=scope["query_string"],
            headers=scope["headers"],
            body=body,
            dialect=exact or dialect_under(path) or self._neutral,
            is_model_call=exact is not None,
            facts=(scope.get("extensions") or {}).get(CALL_FACTS),
        )
        if request.facts is not None:
            request.facts.secrets = self.provider.secrets
            request.facts.keys = self.provider.keys
        try:
            ways = self._admitted(request)
        except Refused as refused:
            await _refuse(request, refused.refusal, send)
            return
        if request.is_model_call:
            timing = self._timed(request)
            try:
                await self._serve(request, ways, send, timing)
            except BaseException as problem:
                timing.broken_off(type(problem))
                raise
        else:
            await self._serve(request, ways, send, None)

    async def _serve(
        self, request: _Request, ways: list[Way], send: Send, timing: CallTiming | None
    ) -> None:
        facts = request.facts
        _put_span(ways, timing)
        retried = None if timing is None else timing.retried
        came: list[bytes] = []
        try:
            answered = await self._caller.ask(ways, facts, came=came, retried=retried)
        except asyncio.CancelledError:
            self._note_unpassed(request, b"".join(came))
            raise
        except Unanswered as unanswered:
            self._note_unpassed(request, unanswered.partial)
            refusal = not_answered(unanswered)
            if timing is not None:
                timing.ended(refusal.category or "connection")
            await _refuse(request, refusal, send)
            return
        came.clear()
        if facts is not None:
            facts.source = "upstream"
        if timing is not None:
            timing.answered_by(answered.reply, answered.begun)
        await stepped(answered.reply, self._relay(request, answered, send, timing))

    def _note_unpassed(self, request: _Request, came: bytes) -> None:
        """Note what came of a body of which the client got nothing."""
        if request.facts is None or not came:
            return
        text = hidden_beginning(came, self.provider).decode("utf-8", "replace")
        request.facts.notes["upstream_body"] = text

    def _admitted(self, request: _Request) -> list[Way]:
        """Return the ways of a request that may go to the provider; raises `Refused`."""
        if not (
            request.is_model_call
            and request.method == "POST"
            and request.dialect.name in self.provider.dialects
        ):
            refusal = refusal_for(self.provider, request.dialect, request.method, request.path)
            if refusal is not None:
                raise Refused(refusal)
        return self._ways(request)

    def _timed(self, request: _Request) -> CallTiming:
        """Begin to time one model call."""
        dialect = request.dialect.name
        names = self._names.get(dialect)
        if names is None:
            names = call_names(dialect, request.body, self.provider.name, self._model_name)
            if self._model_name is not None:
                self._names[dialect] = names
        return timed_call(dialect, names)

    def _ways(self, request: _Request) -> list[Way]:
        """Return the call for each replica, the one to ask first at the front.

        Raises `Refused` for a body that cannot be read.
        """
        body, unpacked = self._body(request)
        once = not (request.is_model_call or may_be_repeated(request.method, request.path))
        messages = request.dialect is MESSAGES
        replicas = self._replicas
        several = len(replicas) > 1
        ways: list[Way] = []
        for replica in in_turn(replicas, current_rollout_id()) if several else replicas:
            headers = replica.rule.headers(request.headers, messages=messages)
            if unpacked:
                headers = [pair for pair in headers if pair[0] != b"content-encoding"]
            target = replica.target(request.path, request.query)
            # What one alone has under way, nobody asks.
            transport = replica if several else replica.transport
            ways.append((transport, Call(request.method, target, headers, body, once=once)))
        return ways

    def _body(self, request: _Request) -> tuple[bytes, bool]:
        """Return the body for the provider, and whether it was compressed and is no more."""
        body = request.body
        if request.is_model_call:
            members = self.provider.members
        elif dialect_under(request.path) is not None:
            members = self._model_only  # `count_tokens` and the like name a model
        else:
            return body, False
        if not (body and members and request.method == "POST"):
            return body, False
        encoding = content_encoding(request.headers)
        if encoding is not None:
            body = _unpacked(body, encoding, self.provider.max_body_bytes)
        return members.put_into(body), encoding is not None

    async def _relay(
        self, request: _Request, answered: Answered, send: Send, timing: CallTiming | None
    ) -> None:
        reply, body = answered.reply, answered.begun
        headers, ended = response_headers(reply.headers), reply.ended
        passing = None
        if self.provider.secrets:
            if not ended and reply.status >= 400:
                self._note_unpassed(request, legible(reply, [body]))
            headers, body, passing = freed(
                *(reply.status, headers, body, self.provider, request.dialect),
                whole=ended,
                facts=request.facts,
            )
            # What may still come of an error would have to pass unread.
            ended = ended or reply.status >= 400
        _tell_of_head(request.facts, body_follows=ended or bool(body))
        try:
            await send({"type": "http.response.start", "status": reply.status, "headers": headers})
            while not ended:
                if body:
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                body = await reply.chunk()
                if timing is not None:
                    timing.passed(body)
                ended = reply.ended
                if passing is not None:
                    body = passing.passed(body, ended)
            if timing is not None and not timing.over:
                # Not after the send: a client that reads slowly is not the provider's time.
                timing.all_passed()
            await send({"type": "http.response.body", "body": body})
        except TransportError as problem:
            _note_break(request.facts, problem)
            kept = b"" if passing is None else passing.broken_off()
            if kept:
                await send({"type": "http.response.body", "body": kept, "more_body": True})
            raise
        finally:
            await reply.aclose()


def _put_span(ways: list[Way], timing: CallTiming | None) -> None:
    """Have the call to the provider name our span, not that of our caller, while traces are on."""
    if tracer() is None:
        return
    if timing is not None and ways:
        timing.asks(ways[0][1].body)
    for _, call in ways:
        if timing is None:
            carry(call.headers, None)
        else:
            timing.carry(call.headers)


class Refused(Exception):
    """The client gets this server's own answer."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


async def _refuse(request: _Request, refusal: Refusal, send: Send) -> None:
    if request.facts is not None:
        request.facts.source = "local"
        request.facts.local_reason = refusal.code
        request.facts.error_category = refusal.category
    if refusal.status >= 500:
        _LOG.warning("%s %s: %s", request.method, request.path.decode("latin-1"), refusal.message)
    body = refusal.body(request.dialect)
    await send(
        {
            "type": "http.response.start",
            "status": refusal.status,
            "headers": refusal.headers(len(body)),
        }
    )
    if request.method == "HEAD":
        body = b""
    await send({"type": "http.response.body", "body": body})


async def _body(receive: Receive) -> bytes | None:
    """Return the whole request body; None when the client went away before its end."""
    pieces = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _unpacked(body: bytes, name: str, limit: int) -> bytes:
    try:
        return decoded(body, name, limit)
    except LookupError:
        message = f"content-encoding {name!r} is not known; known are {', '.join(encodings())}"
        raise Refused(Refusal(415, message, "encoding_unknown")) from None
    except BodyTooLarge as problem:
        raise Refused(Refusal(413, str(problem), "body_too_large")) from None
    except ValueError as problem:
        message = f"the request body cannot be unpacked: {problem}"
        raise Refused(Refusal(400, message, "body_undecodable")) from None


def _tell_of_head(facts: CallFacts | None, *, body_follows: bool) -> None:
    if facts is not None:
        facts.body_follows = body_follows


def _note_break(facts: CallFacts | None, problem: TransportError) -> None:
    if facts is None:
        return
    last = facts.attempts[-1] if facts.attempts else None
    if last is not None:
        last.error = f"{type(problem).__name__}: {problem}"
    if isinstance(problem, CallTimeout):
        facts.error_category = "timeout"
    elif last is not None and last.status is not None and last.status < 400:
        facts.error_category = "connection"
