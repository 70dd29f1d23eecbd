"""Ids that a client gives its own session, out of the request's headers. Pure.

These are the only headers that capture keeps.
"""

from collections.abc import Iterable

__all__ = ["client_assistant_message_id", "client_session_id"]

# Sent by Claude Code, Codex and opencode, then the plain spellings; the first that is there counts.
_SESSION = (
    b"x-claude-code-session-id",
    b"session_id",
    b"session-id",
    b"conversation_id",
    b"x-opencode-session",
    b"x-client-session-id",
    b"x-session-id",
)
_ASSISTANT_MESSAGE = (
    b"x-client-assistant-message-id",
    b"x-assistant-message-id",
    b"x-opencode-request",
)
_LONGEST = 200


def client_session_id(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the client's id of its session or conversation; None when it sent none."""
    return _first(headers, _SESSION)


def client_assistant_message_id(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the client's id of the message that it wants written; None when it sent none."""
    return _first(headers, _ASSISTANT_MESSAGE)


def _first(headers: Iterable[tuple[bytes, bytes]], names: tuple[bytes, ...]) -> str | None:
    """Return the value of the first of `names` that has a usable one."""
    found = {name: value for name, value in headers if name in names}
    for name in names:
        text = found.get(name, b"").decode("latin-1").strip()
        if text and len(text) <= _LONGEST and text.isascii() and text.isprintable():
            return text
    return None
