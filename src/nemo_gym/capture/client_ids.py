"""Ids that a client gives its own session, out of the request's headers. Pure.

These are the only headers that capture keeps. Nobody checks what a client calls its session: one
that holds a credential of the same call, or one of the server's secrets, is passed over like one
that is too long.
"""

from collections.abc import Collection, Iterable, Sequence
from urllib.parse import unquote

from nemo_gym.capture.hiding import SHORTEST_SECRET, credentials_of
from nemo_gym.config.spellings import SecretFinder

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

_Headers = Sequence[tuple[bytes, bytes]]


def client_session_id(headers: _Headers, query: bytes, secrets: Collection[str]) -> str | None:
    """Return the client's id of its session or conversation; None when it sent none to be kept.

    `headers`, all of the request's, and `query` have the credentials that it must not tell;
    `secrets` are those of the server.
    """
    return _first(_SESSION, headers, query, secrets)


def client_assistant_message_id(
    headers: _Headers, query: bytes, secrets: Collection[str]
) -> str | None:
    """Return the client's id of the message that it wants written, likewise."""
    return _first(_ASSISTANT_MESSAGE, headers, query, secrets)


def _first(
    names: dict[bytes, int], headers: _Headers, query: bytes, secrets: Collection[str]
) -> str | None:
    """Return the usable value of the name that comes first in `names`."""
    ranked: list[tuple[int, str]] = []
    for name, value in headers:
        rank = names.get(name)
        if rank is not None:
            text = value.decode("latin-1").strip()
            if text and len(text) <= _LONGEST and text.isascii() and text.isprintable():
                ranked.append((rank, text))
    if not ranked:
        return None
    ranked.sort(key=lambda pair: pair[0])
    known = [secret for secret in secrets if len(secret) >= SHORTEST_SECRET]
    known += credentials_of(headers, query)
    return next((text for _, text in ranked if not _tells(text, known)), None)


def _tells(text: str, secrets: Iterable[str]) -> bool:
    """Say whether a text holds one of the secrets, however it is spelled, or is a piece of one.

    What is known as one secret may be more than it: `Digest response="…"` is a whole header.
    """
    if SecretFinder(secrets).is_in(text):
        return True
    pieces = [piece for piece in {text, unquote(text)} if len(piece) >= SHORTEST_SECRET]
    return any(piece in secret for piece in pieces for secret in secrets)
