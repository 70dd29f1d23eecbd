"""What went wrong in one call, as one word; None when nothing did. Pure.

The words are those of the stored line. The client's view decides: a provider's 503 that a retry
got over is no error.
"""

from typing import Final

from nemo_gym.capture.facts import CallFacts
from nemo_gym.capture.tap import Tapped
from nemo_gym.wire.dialects.base import Assembled
from nemo_gym.wire.embed import EmbeddedBody

__all__ = ["category_of_status", "error_category"]

_BY_STATUS: Final = {
    401: "auth",
    403: "auth",
    404: "not_found",
    408: "timeout",
    429: "rate_limit",
    504: "timeout",
}
_WITHOUT_BODY = frozenset({204, 205})
# How a Responses object that ends a stream, or comes without one, says how it went.
_BY_RESPONSE_STATUS: Final = {
    "failed": "upstream_error",
    "incomplete": "incomplete",
    "cancelled": "incomplete",
}


def category_of_status(status: int) -> str | None:
    """Return the category of an HTTP status; None below 400."""
    if status < 400:
        return None
    return _BY_STATUS.get(status, "upstream_error" if status >= 500 else "client_error")


def error_category(
    tapped: Tapped, facts: CallFacts | None, body: EmbeddedBody | None
) -> str | None:
    """Return the category of a call; `body` is its response where that is a JSON object."""
    if tapped.phase is not None:
        return "cancelled"
    known = facts.error_category if facts is not None else None
    status = tapped.status
    if status is None or not 200 <= status < 300 or _has_no_body(tapped):
        return known or ("exception" if status is None else category_of_status(status))
    if tapped.stream is not None:
        unread = tapped.response.undecodable is not None or tapped.response.truncated_at is not None
        return _of_stream(tapped.stream, unread=unread)
    return known or ("exception" if tapped.raised else _of_body(body))


def _has_no_body(tapped: Tapped) -> bool:
    """Say whether there is none by the rules of HTTP, and not because the provider sent nothing."""
    return tapped.call.method == "HEAD" or tapped.status in _WITHOUT_BODY


def _of_stream(stream: Assembled, *, unread: bool) -> str | None:
    """Return the category of a stream; `unread`: it may have gone on where capture stopped."""
    if stream.error is not None and stream.terminal is None:
        return "upstream_error"
    if stream.terminal is None:
        return "capture_parse_error" if unread else "stream_truncated"
    return _BY_RESPONSE_STATUS.get(stream.terminal.removeprefix("response."))


def _of_body(body: EmbeddedBody | None) -> str | None:
    if body is None:
        return "capture_parse_error"
    if isinstance(body.status, str) and body.status in _BY_RESPONSE_STATUS:
        return _BY_RESPONSE_STATUS[body.status]
    return "upstream_error" if body.error else None
