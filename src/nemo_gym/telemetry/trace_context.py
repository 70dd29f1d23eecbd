"""W3C trace context: a `traceparent` header in, three numbers out, and back. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "TRACEPARENT",
    "TRACESTATE",
    "TraceContext",
    "format_traceparent",
    "joined_state",
    "parse_traceparent",
    "sampled_by",
]

TRACEPARENT = b"traceparent"
TRACESTATE = b"tracestate"

_GRAMMAR = re.compile(
    rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
)
_SAMPLED = 0x01
# Keys as the second edition has them, which takes all of the first.
_MEMBER = re.compile(rb"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{1,256}")
_MOST_MEMBERS = 32


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
    """The `tracestate` that came with it, passed on as it came."""


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


def joined_state(headers: Sequence[bytes]) -> bytes:
    """Return the `tracestate` that several headers make together, in their order.

    Empty where it is not a valid one, or has more members than the recommendation allows.
    """
    given = b",".join(headers)
    members = [member for each in given.split(b",") if (member := each.strip(b" \t"))]
    valid = len(members) <= _MOST_MEMBERS and all(map(_MEMBER.fullmatch, members))
    if not valid:
        return b""
    return headers[0] if len(headers) == 1 else b",".join(members)


def format_traceparent(context: TraceContext) -> bytes:
    """Return the `traceparent` value for `context`."""
    return b"00-%032x-%016x-%02x" % (context.trace_id, context.span_id, context.sampled)


def sampled_by(ratio: float, trace_id: int) -> bool:
    """Return whether a new trace is recorded: by its id's low 64 bits, as OpenTelemetry decides."""
    return trace_id & 0xFFFF_FFFF_FFFF_FFFF < round(ratio * (1 << 64))
