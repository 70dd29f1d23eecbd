"""Messages: `POST /v1/messages`."""

from nemo_gym.wire.dialects.base import Dialect, ErrorFacts

__all__ = ["MESSAGES"]

# The documented pairs of HTTP status and error type.
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def _error_body(error: ErrorFacts) -> dict[str, object]:
    fallback = "api_error" if error.status >= 500 else "invalid_request_error"
    kind = _TYPES.get(error.status, fallback)
    return {"type": "error", "error": {"type": kind, "message": error.message}}


def _error_event(error: ErrorFacts) -> tuple[str | None, dict[str, object]]:
    return "error", _error_body(error)


MESSAGES = Dialect(
    name="messages",
    route=b"/v1/messages",
    error_body=_error_body,
    error_event=_error_event,
)
