"""What capture, the driver, agents and the transport tell telemetry: one short function an event.

Counts for the live view always run; series only while metrics are exported. Nothing here raises.
Times are in seconds, sizes in bytes. Names of outcomes, errors and tools come from fixed lists or
from configuration, and every series is bounded besides.
"""

from nemo_gym.telemetry.exporting import exporting
from nemo_gym.telemetry.live import counting
from nemo_gym.telemetry.series import OTHER
from nemo_gym.telemetry.tracing import AttributeValue, NoSpan, Span, record_span, span, tracer

__all__ = [
    "capture_committed",
    "capture_failed",
    "capture_submitted",
    "connection_at_hand",
    "connection_waited",
    "rollout_finished",
    "tool_call_ended",
    "tool_span",
]

_LONGEST_NAME = 100
_MOST_SERVERS = 100


def capture_submitted() -> None:
    """Count one row handed to the store; it is queued until it is committed or has failed."""
    counting().rows_submitted += 1


def capture_committed(rows: int, size: int, took_s: float) -> None:
    """Count a batch of `rows` that became durable together, `size` bytes in `took_s`."""
    live = counting()
    took_ms = took_s * 1000
    live.rows_durable += rows
    live.commit_duration.record(took_ms)
    active = exporting()
    if active is not None:
        active.recorded.commit_rows.record(rows)
        active.recorded.commit_bytes.record(size)
        active.recorded.commit_duration.record(took_ms)


def capture_failed(reason: str, rows: int = 1) -> None:
    """Count rows that could not be stored; `reason` is an errno name or an exception's class."""
    counting().rows_failed += rows
    active = exporting()
    if active is not None:
        active.recorded.capture_failures.add(rows, reason)


def rollout_finished(outcome: str, took_s: float) -> None:
    """Record a rollout's end; `outcome` is `rewarded` or its `_ng_failure_class`."""
    active = exporting()
    if active is not None:
        active.recorded.rollouts_ended.record((outcome, took_s * 1000))


def tool_span(tool: str) -> Span | NoSpan:
    """Begin the span of a tool call, for `with`: what the call asks of servers is inside it."""
    return span(f"execute_tool {tool[:_LONGEST_NAME]}", attributes=_tool_attributes(tool))


def _tool_attributes(tool: str) -> dict[str, AttributeValue]:
    if tracer() is None:
        return {}
    return {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}


def tool_call_ended(
    tool: str, took_s: float, error: str | None = None, *, has_span: bool = False
) -> None:
    """Record one tool call of an agent that ends now; `error` is a short category or None.

    Its span is made now, in which nothing lies, unless it has one by `tool_span`.
    """
    live = counting()
    live.tool_calls += 1
    if error is not None:
        live.tool_errors += 1
    active = exporting()
    if active is not None:
        # A model may ask for tools that do not exist: such a name is no series.
        name = "unknown" if error == "unknown_tool" else tool
        active.recorded.tool_duration.record(took_s, name, error)
    if tracer() is not None and not has_span:
        name = f"execute_tool {tool[:_LONGEST_NAME]}"
        record_span(name, took_s, attributes=_tool_attributes(tool), error=error)


def connection_at_hand() -> None:
    """Record that a call over HTTP found a connection without waiting."""
    counting().connections.at_hand += 1


def connection_waited(waited_s: float, to: str) -> None:
    """Record how long a call over HTTP waited for a connection, a new one or another call's.

    `to` is the scheme, host and port of the server that it goes to.
    """
    live = counting()
    live.connections.record(waited_s)
    waits = live.connection_waits_to
    waits[to if to in waits or len(waits) < _MOST_SERVERS else OTHER] += waited_s
