"""What the forwarder tells capture about a call, by way of the ASGI scope.

The forwarder of a model server finds one `CallFacts` under `scope["extensions"][CALL_FACTS]` when
the call is to be captured, and writes into it as things happen. Absent: the call is not captured.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

__all__ = [
    "CALL_FACTS",
    "CLIENT_WENT_AWAY",
    "REFUSAL_HEADER",
    "SERVER_STOPPING",
    "CallFacts",
    "Source",
    "UpstreamAttempt",
]

CALL_FACTS = "nemo_gym.model_call"
CLIENT_WENT_AWAY = "the client went away"
"""What the disconnect guard cancels a call with; a call that is cancelled otherwise has a client
that waits: its server stops."""
SERVER_STOPPING = "server_stopping"
"""The code of a call that was cut off because its server stopped."""
REFUSAL_HEADER = "x-nemo-gym-refusal"
"""On what a model server answers by itself: no provider has said it. Its value is a code."""


Source: TypeAlias = Literal["upstream", "local"]


@dataclass(slots=True)
class UpstreamAttempt:
    """One try at the provider."""

    started_at: float
    """UTC Unix seconds at which the try began."""
    ms: float | None = None
    """Until the response head or the error, in ms."""
    status: int | None = None
    """HTTP status of the provider; None when no response head came."""
    error: str | None = None
    """What went wrong where no response head came: an error class and its text, no secrets."""


# Bare types: a generic alias called as a factory costs a microsecond, a function half of one.
_NO_ATTEMPTS = cast("Callable[[], list[UpstreamAttempt]]", list)
_NO_NOTES = cast("Callable[[], dict[str, object]]", dict)


@dataclass(slots=True)
class CallFacts:
    """Mutable for the length of one call; read by capture when the call ends."""

    source: Source | None = None
    """Who made the response that the client got: the provider, or this server."""
    local_reason: str | None = None
    """Why this server answered by itself: a short code such as `upstream_unreachable`."""
    error_category: str | None = None
    """Category known only to the forwarder (`timeout`, `connection`); None: judge by the status."""
    body_follows: bool = False
    """Set before the head of a response whose body, or some of it, is sent without a wait between:
    they may go out together."""
    attempts: list[UpstreamAttempt] = field(default_factory=_NO_ATTEMPTS)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """What the server itself must keep secret: looked for in errors before they are stored."""
    keys: frozenset[str] = field(default=frozenset(), repr=False)
    """Those of `secrets` that can be nothing else: looked for in every row."""
    unsearched: bool = False
    """Whether the answer may hold one of `keys`: it was not, or not all, looked through."""
    request_open: bool = False
    """Whether more of the request was to come when the call ended."""
    notes: dict[str, object] = field(default_factory=_NO_NOTES)
    """Codes for what a reader must know, e.g. the provider's dialect where it differs."""
