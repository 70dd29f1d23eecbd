"""The three dialects: stream assembly, terminal events, error shapes. Pure.

Comes in: a route, or what went wrong. Goes out: a `Dialect`, or bytes in its official shape.
"""

from nemo_gym.wire.dialects.base import Dialect, DialectName, ErrorFacts
from nemo_gym.wire.dialects.chat import CHAT
from nemo_gym.wire.dialects.messages import MESSAGES
from nemo_gym.wire.dialects.responses import RESPONSES
from nemo_gym.wire.json import dumps

__all__ = [
    "CHAT",
    "DIALECTS",
    "MESSAGES",
    "RESPONSES",
    "Dialect",
    "DialectName",
    "dialect_named",
    "dialect_of_route",
    "error_body",
    "error_event",
]

DIALECTS: tuple[Dialect, ...] = (RESPONSES, CHAT, MESSAGES)

_BY_ROUTE = {dialect.route: dialect for dialect in DIALECTS}
_BY_NAME = {str(dialect.name): dialect for dialect in DIALECTS}


def dialect_of_route(path: bytes) -> Dialect | None:
    """Return the dialect whose model route `path` is; None for every other path.

    `path` is raw and without rollout prefix; a query is left out of the comparison.
    """
    return _BY_ROUTE.get(path.partition(b"?")[0])


def dialect_named(name: str) -> Dialect | None:
    """Return the dialect called `name`, as stored in captures."""
    return _BY_NAME.get(name)


def error_body(dialect: Dialect, status: int, message: str, code: str | None = None) -> bytes:
    """Return the JSON body of an error response with `status`, in the dialect's official shape."""
    return dumps(dialect.error_body(ErrorFacts(status, message, code)))


def error_event(
    dialect: Dialect,
    status: int,
    message: str,
    code: str | None = None,
    *,
    sequence_number: int = 0,
) -> bytes:
    """Return one whole SSE event that ends a stream with an error, in the dialect's shape.

    `status` is the one that an error response would have had. `sequence_number` is used by
    dialects that number their events.
    """
    name, data = dialect.error_event(ErrorFacts(status, message, code, sequence_number))
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + dumps(data) + b"\n\n"
