"""What a dialect is: its name, its route, and how it says that something went wrong.

Adding a dialect is one module with one `Dialect` value, and one entry in `dialects.DIALECTS`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Dialect", "DialectName", "ErrorFacts", "openai_error"]

DialectName = Literal["responses", "chat", "messages"]


@dataclass(frozen=True, slots=True)
class ErrorFacts:
    """An error that this server reports to a client, before it takes a dialect's shape."""

    status: int
    """HTTP status that goes with it, also where the error travels inside a stream."""
    message: str
    code: str | None = None
    """A short machine-readable code, where the dialect has a place for it."""
    sequence_number: int = 0
    """Place in the stream, for dialects that number their events."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One of the public protocols for calling a model."""

    name: DialectName
    route: bytes
    """Path of the model route, without a rollout prefix and without a query."""
    error_body: Callable[[ErrorFacts], dict[str, object]]
    """The JSON body of an error response."""
    error_event: Callable[[ErrorFacts], tuple[str | None, dict[str, object]]]
    """Event name (None: unnamed) and JSON data of an error inside a stream."""


_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def openai_error(error: ErrorFacts) -> dict[str, object]:
    """Return an error body as the OpenAI API shapes it, for Responses and for Chat."""
    fallback = "server_error" if error.status >= 500 else "invalid_request_error"
    return {
        "error": {
            "message": error.message,
            "type": _OPENAI_TYPES.get(error.status, fallback),
            "param": None,
            "code": error.code,
        }
    }
