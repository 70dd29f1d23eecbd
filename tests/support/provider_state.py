"""What a provider will do and what it saw: behaviours, requests, counts. No sockets."""

import asyncio
import itertools
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import orjson

from support.provider_bodies import ID, MODEL, Answer, ToolCall, events_of, json_of

__all__ = [
    "Behaviour",
    "Counts",
    "Provider",
    "ReceivedRequest",
    "behaviour_of",
    "rate_limited",
    "unauthorised",
]

Moment = Literal["before_head", "after_head", "mid_body"]

_TRUE = re.compile(rb"\s*:\s*true")
_MODEL = re.compile(rb'(?<!\\)"model"\s*:\s*"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What the provider does with one model call. The default answers at once with 200."""

    answer: Answer = field(default_factory=Answer)
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    """Sent instead of the answer, whatever the dialect."""
    content_type: str | None = None
    delay_s: float = 0.0
    """Before the head."""
    delay_spread: float = 0.0
    """Part of the delay by which it varies, evenly, to both sides. The head then says under
    `x-delay-ms` how long this answer took, for who wants to know what a proxy added."""
    reset: Moment | None = None
    """Break the connection (RST) at that moment."""
    close: Moment | None = None
    """Close the connection in an orderly way at that moment: half a body, a stream cut short."""
    hang: Moment | None = None
    """Say nothing more from that moment on, connection open."""
    invalid_http: bool = False
    echo_key: bool = False
    """Put the key that came into the body of the answer, as some providers do with a 401."""
    encoding: Literal["gzip", "br", "zstd"] | None = None
    piece_size: int | None = None
    """Cut the body into pieces of so many bytes, each its own chunk and its own write."""
    piece_delay_s: float = 0.0
    """Before each piece (an SSE event, or `piece_size` bytes)."""
    cut_after: int | None = None
    """With `reset`, `close` or `hang` at `mid_body`: after so many pieces; default half."""

    @property
    def plain(self) -> bool:
        return not (
            self.delay_s
            or self.reset
            or self.close
            or self.hang
            or self.invalid_http
            or self.piece_size
            or self.piece_delay_s
        )


def rate_limited(retry_after: str | None = None) -> Behaviour:
    """Return a 429, with `Retry-After` where given."""
    headers = (("retry-after", retry_after),) if retry_after is not None else ()
    body = b'{"error":{"message":"Slow down, please.","type":"rate_limit_error"}}'
    return Behaviour(status=429, headers=headers, body=body)


def unauthorised() -> Behaviour:
    """Return a 401 that repeats the key it was sent."""
    return Behaviour(status=401, echo_key=True)


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    """Lower-case names; the last value where a name came twice."""
    body: bytes
    pairs: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Every header as it came, in order."""

    @property
    def key(self) -> str:
        """The credential, without its scheme."""
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        return self.headers.get("x-api-key") or bearer

    def json(self) -> dict[str, object]:
        value = orjson.loads(self.body)
        assert isinstance(value, dict)
        return value


@dataclass(slots=True)
class Counts:
    """What happened so far. `cancelled`: the caller went away before its answer was whole."""

    connections: int = 0
    requests: int = 0
    in_flight: int = 0
    peak_in_flight: int = 0
    completed: int = 0
    cancelled: int = 0
    broken: int = 0
    """Answers that the provider broke on purpose."""


@dataclass(slots=True)
class Provider:
    """State of one provider: what it will do, what it saw."""

    default: Behaviour = field(default_factory=Behaviour)
    decide: Callable[[ReceivedRequest], Behaviour | None] | None = None
    """Asked first for each model call; None: the script, then `default`."""
    keep_requests: int = 1000
    """So many last requests are kept in `requests`; 0 saves the cost."""
    origin: str = ""
    counts: Counts = field(default_factory=Counts)
    requests: deque[ReceivedRequest] = field(default_factory=deque)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    connections: "set[asyncio.Transport]" = field(default_factory=set)
    _script: deque[Behaviour] = field(default_factory=deque)
    _until: tuple[float, Behaviour] | None = None
    _rendered: dict[tuple[str, Answer, bool], list[bytes]] = field(default_factory=dict)
    _ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    @property
    def base_url(self) -> str:
        return f"{self.origin}/v1"

    def forget_script(self) -> None:
        self._script.clear()

    def script(self, *behaviours: Behaviour) -> None:
        """Queue what happens to the next model calls, one each; then `default` again."""
        self._script.extend(behaviours)

    def for_seconds(self, seconds: float, behaviour: Behaviour) -> None:
        """Do `behaviour` to every model call for so long, counted from now."""
        self._until = (time.monotonic() + seconds, behaviour)

    async def until(self, met: Callable[[Counts], bool], timeout_s: float = 5.0) -> None:
        """Wait until the counts say so."""
        async with asyncio.timeout(timeout_s):
            while not met(self.counts):
                self.changed.clear()
                await self.changed.wait()

    def behaviour_for(self, request: ReceivedRequest) -> Behaviour:
        if self.decide is not None and (decided := self.decide(request)) is not None:
            return decided
        if self._until is not None and time.monotonic() < self._until[0]:
            return self._until[1]
        return self._script.popleft() if self._script else self.default

    def pieces_for(self, dialect: str, request: ReceivedRequest, b: Behaviour) -> list[bytes]:
        """Return the body: one piece, or one for each SSE event."""
        if b.echo_key:
            return [b'{"error":{"message":"Incorrect API key: ' + request.key.encode() + b'"}}']
        if b.body is not None:
            return [b.body]
        key = (dialect, b.answer, _asks_for_stream(request.body))
        if (template := self._rendered.get(key)) is None:
            made = events_of if key[2] else lambda d, a: [json_of(d, a)]
            template = self._rendered[key] = made(dialect, b.answer)
        number = f"{next(self._ids):0{len(ID)}d}".encode()
        found = _MODEL.search(request.body)
        model = found[1] if found else b"default-model"
        return [
            piece.replace(ID.encode(), number).replace(MODEL.encode(), model) for piece in template
        ]


def _asks_for_stream(body: bytes) -> bool:
    """Say whether the body asks for events; it is not parsed, so that answering costs little."""
    at = body.find(b'"stream"')
    while at >= 0:
        if body[at - 1 : at] != b"\\" and _TRUE.match(body, at + len(b'"stream"')):
            return True
        at = body.find(b'"stream"', at + 1)
    return False


def behaviour_of(value: dict[str, object]) -> Behaviour:
    """Return a `Behaviour` from the JSON form that `/_script` takes."""
    fields = dict(value)
    answer = fields.pop("answer", {})
    assert isinstance(answer, dict)
    calls = tuple(ToolCall(**call) for call in answer.pop("tool_calls", ()))
    if isinstance(body := fields.pop("body", None), str):
        fields["body"] = body.encode()
    if isinstance(headers := fields.pop("headers", None), dict):
        fields["headers"] = tuple(headers.items())
    return replace(Behaviour(), answer=Answer(**answer, tool_calls=calls), **fields)  # type: ignore[arg-type]
