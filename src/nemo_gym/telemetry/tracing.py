"""Spans as plain values: begun, ended and queued here, sent by the exporter's own thread.

One trace a rollout: the driver begins it, `inject` puts it on every call to another server, over
HTTP or in-process, and `trace_middleware` (or `extract`) takes it up there. No span of a library is
held open: a span is made when it is over, so it may end in another task than it began in. While
traces are off, every function here is one global read.
"""

import os
import random
from asyncio import CancelledError
from collections import deque
from collections.abc import Iterable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass
from time import time_ns
from typing import Literal, Protocol

from nemo_gym.telemetry.trace_context import (
    TRACEPARENT,
    TRACESTATE,
    TraceContext,
    format_traceparent,
    joined_state,
    parse_traceparent,
    sampled_by,
)

__all__ = [
    "CANCELLED",
    "ROLLOUT_ID",
    "ROLLOUT_OUTCOME",
    "ROLLOUT_REWARD",
    "AttributeValue",
    "Bridge",
    "EndedSpan",
    "NoSpan",
    "Span",
    "SpanKind",
    "Tracer",
    "Unsampled",
    "begin_span",
    "carry",
    "extract",
    "inject",
    "record_span",
    "set_tracer",
    "span",
    "tracer",
]

AttributeValue = str | bool | int | float
SpanKind = Literal["internal", "server", "client"]

ROLLOUT_ID = "nemo.gym.rollout.id"
"""Attribute of the spans that know their rollout; never of a metric."""
ROLLOUT_OUTCOME = "nemo.gym.rollout.outcome"
"""How a rollout ended: `rewarded`, or the class of its failure; on its span and on metrics."""
ROLLOUT_REWARD = "nemo.gym.rollout.reward"
"""Attribute of the span of a rollout that has one."""
CANCELLED = "cancelled"
"""`error.type` of what was ended before it was done, because whoever asked went away."""

_CURRENT: ContextVar[TraceContext | None] = ContextVar("nemo_gym_trace", default=None)
_QUEUE_LIMIT = 8192
_ENDINGS = (CancelledError, GeneratorExit)
_NONE: Mapping[str, AttributeValue] = {}
_HEADERS = frozenset((TRACEPARENT, TRACESTATE))


@dataclass(frozen=True, slots=True)
class EndedSpan:
    """A span that is over, as the exporter's thread gets it."""

    name: str
    kind: SpanKind
    context: TraceContext
    parent: TraceContext | None
    started_ns: int
    """Unix time in nanoseconds."""
    ended_ns: int
    attributes: Mapping[str, AttributeValue]
    error: str | None
    """Category of what went wrong; None when nothing did."""


class Bridge(Protocol):
    """Another library's notion of the running span, so that its spans and ours nest."""

    def current(self) -> TraceContext | None:
        """Return the span that runs in this task."""
        ...

    def attach(self, context: TraceContext) -> object:
        """Make `context` the running span of this task; return what `detach` needs."""
        ...

    def detach(self, token: object) -> None:
        """Undo `attach`, in the same task."""
        ...


class Tracer:
    """Decides which traces are recorded, knows the running span, queues what has ended."""

    def __init__(self, ratio: float, bridge: Bridge | None = None) -> None:
        self.ratio = ratio
        self.bridge = bridge
        self.ended: deque[EndedSpan] = deque()
        self.dropped = 0

    def current(self) -> TraceContext | None:
        """Return the innermost running span of this task, ours or another library's."""
        return _CURRENT.get() if self.bridge is None else self.bridge.current()

    def begin(
        self,
        name: str,
        kind: SpanKind,
        parent: TraceContext | None,
        attributes: Mapping[str, AttributeValue] = _NONE,
    ) -> "Span | Unsampled":
        """Begin a span under `parent`, or a trace of its own without one."""
        if parent is None:
            trace_id, span_id = random.getrandbits(128) or 1, random.getrandbits(64) or 1
            context = TraceContext(trace_id, span_id, sampled_by(self.ratio, trace_id))
            if not context.sampled:
                return Unsampled(self, context)
        elif parent.sampled:
            context = _child_of(parent)
        else:
            return Unsampled(self, parent)
        return Span(self, name, context, parent, kind=kind, attributes=attributes)

    def keep(self, ended: EndedSpan) -> None:
        """Queue a span for the exporter; beyond the limit it is dropped and counted."""
        if len(self.ended) >= _QUEUE_LIMIT:
            self.dropped += 1
        else:
            self.ended.append(ended)

    def drain(self, limit: int) -> list[EndedSpan]:
        """Take at most `limit` ended spans, oldest first; only the exporter's thread calls this."""
        return [self.ended.popleft() for _ in range(min(limit, len(self.ended)))]


class _Entered:
    """A context as the running one of this task, for `with`."""

    __slots__ = ("_attached", "_token", "_tracer", "context")

    def __init__(self, owner: Tracer, context: TraceContext) -> None:
        self._tracer = owner
        self._token: Token[TraceContext | None] | None = None
        self._attached: object = None
        self.context = context

    def enter(self) -> None:
        self._token = _CURRENT.set(self.context)
        if self._tracer.bridge is not None:
            self._attached = self._tracer.bridge.attach(self.context)

    def leave(self) -> None:
        token, self._token = self._token, None
        attached, self._attached = self._attached, None
        try:
            if token is not None:
                _CURRENT.reset(token)
                if self._tracer.bridge is not None:
                    self._tracer.bridge.detach(attached)
        except ValueError:
            # Closed from another task, as generators may be: that task's span is not ours to end.
            pass


class Span(_Entered):
    """A span under way. `with` makes it the parent of what runs inside, in this task."""

    __slots__ = ("_ended", "attributes", "kind", "name", "parent", "started_ns")

    def __init__(
        self,
        owner: Tracer,
        name: str,
        context: TraceContext,
        parent: TraceContext | None,
        *,
        kind: SpanKind,
        attributes: Mapping[str, AttributeValue],
    ) -> None:
        super().__init__(owner, context)
        self._ended = False
        self.name = name
        self.kind: SpanKind = kind
        self.parent = parent
        self.attributes = dict(attributes)
        self.started_ns = time_ns()

    def __enter__(self) -> "Span":
        self.enter()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        self.leave()
        self.end(None if kind is None else CANCELLED if kind in _ENDINGS else kind.__name__)

    def set(self, key: str, value: AttributeValue) -> None:
        """Put an attribute on the span."""
        self.attributes[key] = value

    def end(self, error: str | None = None) -> None:
        """End the span now; `error` is a short category. Only the first call counts."""
        if self._ended:
            return
        self._ended = True
        times = (self.started_ns, time_ns())
        if error is not None:
            self.attributes["error.type"] = error
        self._tracer.keep(
            EndedSpan(
                self.name, self.kind, self.context, self.parent, *times, self.attributes, error
            )
        )


class NoSpan:
    """Stands in for a span that is not recorded."""

    __slots__ = ()

    def __enter__(self) -> "NoSpan":
        return self

    def __exit__(self, *_exc_info: object) -> None:
        """Do nothing."""

    def set(self, key: str, value: AttributeValue) -> None:
        """Drop the attribute."""

    def end(self, error: str | None = None) -> None:
        """Do nothing."""


class Unsampled(NoSpan, _Entered):
    """The start of a trace that is not recorded, here: whoever is called from inside is told so."""

    __slots__ = ()

    def __enter__(self) -> "Unsampled":
        self.enter()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.leave()


_NO_SPAN = NoSpan()
_TRACER: Tracer | None = None


def tracer() -> Tracer | None:
    """Return this process's tracer, None while traces are off."""
    return _TRACER


def set_tracer(value: Tracer | None) -> None:
    """Turn traces on, or (None) off, for this process."""
    global _TRACER  # noqa: PLW0603 - one tracer a process, read on the hot path as a plain global
    _TRACER = value


os.register_at_fork(after_in_child=lambda: set_tracer(None))


def span(
    name: str,
    *,
    kind: SpanKind = "internal",
    attributes: Mapping[str, AttributeValue] = _NONE,
    root: bool = False,
) -> Span | NoSpan:
    """Begin a span under the running one, for `with`; `root` begins a trace of its own.

    Not for the body of an async generator: what runs between two of its values is not inside.
    """
    owner = _TRACER
    if owner is None:
        return _NO_SPAN
    parent = None if root else owner.current()
    if parent is not None and not parent.sampled:
        return _NO_SPAN
    return owner.begin(name, kind, parent, attributes)


def begin_span(
    name: str, *, kind: SpanKind = "internal", attributes: Mapping[str, AttributeValue] = _NONE
) -> Span | None:
    """Begin a span that is nobody's parent, to be ended from anywhere.

    None while traces are off, and where no trace runs that is recorded.
    """
    owner = _TRACER
    if owner is None:
        return None
    parent = owner.current()
    if parent is None or not parent.sampled:
        return None
    return Span(owner, name, _child_of(parent), parent, kind=kind, attributes=attributes)


def record_span(
    name: str,
    took_s: float,
    *,
    attributes: Mapping[str, AttributeValue] = _NONE,
    error: str | None = None,
) -> None:
    """Add a span under the running one that ends now and began `took_s` seconds ago."""
    made = begin_span(name, attributes=attributes)
    if made is not None:
        made.started_ns -= int(took_s * 1e9)
        made.end(error)


def inject(headers: list[tuple[bytes, bytes]]) -> None:
    """Add the running span to the headers of a call to another server; names are lower case.

    A valid span that is there already is left alone: who put it there meant it.
    """
    owner = _TRACER
    if owner is None:
        return
    context = owner.current()
    if context is None:
        return
    if any(name in _HEADERS for name, _ in headers):
        if _carried(headers) is not None:
            return
        _drop(headers)
    _add(headers, context)


def carry(headers: list[tuple[bytes, bytes]], made: Span | None) -> None:
    """Put the span `made`, else the running one, in place of whatever trace the headers have.

    For headers that are passed on, whose trace the span is a part of already. Names are lower case.
    """
    owner = _TRACER
    if owner is None:
        return
    context = owner.current() if made is None else made.context
    if context is not None:
        _drop(headers)
        _add(headers, context)


def extract(headers: Iterable[tuple[bytes, bytes]]) -> TraceContext | None:
    """Return the caller's span from the headers of a request; names are lower case."""
    return None if _TRACER is None else _carried(headers)


def _carried(headers: Iterable[tuple[bytes, bytes]]) -> TraceContext | None:
    parents: list[bytes] = []
    states: list[bytes] = []
    for name, value in headers:
        if name == TRACEPARENT:
            parents.append(value)
        elif name == TRACESTATE:
            states.append(value)
    # Of two parents neither is the one.
    context = parse_traceparent(parents[0]) if len(parents) == 1 else None
    if context is not None and states:
        context.state = joined_state(states)
    return context


def _add(headers: list[tuple[bytes, bytes]], context: TraceContext) -> None:
    headers.append((TRACEPARENT, format_traceparent(context)))
    if context.state:
        headers.append((TRACESTATE, context.state))


def _drop(headers: list[tuple[bytes, bytes]]) -> None:
    headers[:] = [pair for pair in headers if pair[0] not in _HEADERS]


def _child_of(parent: TraceContext) -> TraceContext:
    span_id = random.getrandbits(64) or 1
    return TraceContext(parent.trace_id, span_id, parent.sampled, parent.state)
