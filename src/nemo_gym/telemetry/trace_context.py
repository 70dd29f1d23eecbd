"""W3C trace context: a `traceparent` header in, three numbers out, and back. Pure."""

import re
from dataclasses import dataclass

__all__ = [
    "TRACEPARENT",
    "TRACESTATE",
    "TraceContext",
    "format_traceparent",
    "parse_traceparent",
    "sampled_by",
]

TRACEPARENT = b"traceparent"
TRACESTATE = b"tracestate"

_GRAMMAR = re.compile(
    rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
)
_SAMPLED = 0x01


# Not frozen, though nobody changes one: one is made per span, at a third of the cost.
@dataclass(slots=True)
class TraceContext:
    """Where in which trace something happens."""

    trace_id: int
    """128 bits, never zero."""
    span_id: int
    """64 bits, never zero: the span that what comes next is a child of."""
    sampled: bool
    """Whether the trace is recorded; decided once, at its root."""
    state: bytes = b""
    """The `tracestate` that came with it, passed on as it is."""


def parse_traceparent(header: bytes) -> TraceContext | None:
    """Return the context of a `traceparent` value, None when it is not a valid one.

    A version above 00 may carry more fields, which are left alone; version ff is invalid.
    """
    found = _GRAMMAR.fullmatch(header.strip())
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    if version == b"ff" or (version == b"00" and rest):
        return None
    context = TraceContext(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED))
    return context if context.trace_id and context.span_id else None


def format_traceparent(context: TraceContext) -> bytes:
    """Return the `traceparent` value for `context`."""
    return b"00-%032x-%016x-%02x" % (context.trace_id, context.span_id, context.sampled)


def sampled_by(ratio: float, trace_id: int) -> bool:
    """Return whether a new trace is recorded: by its id's low 64 bits, as OpenTelemetry decides."""
    return trace_id & 0xFFFF_FFFF_FFFF_FFFF < round(ratio * (1 << 64))
