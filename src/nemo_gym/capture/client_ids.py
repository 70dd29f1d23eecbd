"""Ids that a client gives its own session, out of the request's headers. Pure.

These are the only headers that capture keeps.
"""

from collections.abc import Iterable

__all__ = ["CLIENT_ID_HEADERS", "client_assistant_message_id", "client_session_id"]

# Sent by Claude Code, Codex and opencode, then the plain spellings; the first that is there counts.
_SESSION = {
    b"x-claude-code-session-id": 0,
    b"session_id": 1,
    b"session-id": 2,
    b"conversation_id": 3,
    b"x-opencode-session": 4,
    b"x-client-session-id": 5,
    b"x-session-id": 6,
}
_ASSISTANT_MESSAGE = {
    b"x-client-assistant-message-id": 0,
    b"x-assistant-message-id": 1,
    b"x-opencode-request": 2,
}
_LONGEST = 200

CLIENT_ID_HEADERS = frozenset({*_SESSION, *_ASSISTANT_MESSAGE})
"""Every header that is looked at here."""


def client_session_id(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the client's id of its session or conversation; None when it sent none."""
    return _first(headers, _SESSION)


def client_assistant_message_id(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the client's id of the message that it wants written; None when it sent none."""
    return _first(headers, _ASSISTANT_MESSAGE)


def _first(headers: Iterable[tuple[bytes, bytes]], names: dict[bytes, int]) -> str | None:
    """Return the usable value of the name that comes first in `names`."""
    best, place = None, len(names)
    for name, value in headers:
        rank = names.get(name)
        if rank is not None and rank < place:
            text = value.decode("latin-1").strip()
            if text and len(text) <= _LONGEST and text.isascii() and text.isprintable():
                best, place = text, rank
    return best
