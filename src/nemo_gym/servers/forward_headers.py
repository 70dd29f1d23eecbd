"""Header lines between a client and a provider: what passes, what does not, whose key. Pure."""

from collections.abc import Iterable

from nemo_gym.capture.hiding import Hider
from nemo_gym.servers.provider import Provider
from nemo_gym.transport.address import Address
from nemo_gym.transport.base import RawHeaders
from nemo_gym.wire.encoding import parse_encodings

__all__ = ["HeaderRule", "content_encoding", "header", "hide_key", "response_headers"]

_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
# `host` and `content-length` are made anew, and nobody waits for a 100.
_NOT_ASKED = _HOP_BY_HOP | {b"host", b"content-length", b"expect"}
# Ours is the answer that the client gets, so ours is its date.
_NOT_ANSWERED = _HOP_BY_HOP | {b"date"}
_CREDENTIALS = frozenset((b"authorization", b"x-api-key", b"api-key"))
_ANTHROPIC_VERSION = (b"anthropic-version", b"2023-06-01")
_NOTHING: frozenset[bytes] = frozenset()
_OWN_COOKIES = b"ng_"


class HeaderRule:
    """What becomes of a client's headers on their way to one address of a provider.

    Worked out once: only what a client sends differs between calls.
    """

    __slots__ = ("_added", "_dropped", "_has_version")

    def __init__(self, provider: Provider, address: Address) -> None:
        own = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in provider.headers.items()
        ]
        added: RawHeaders = []
        if provider.key is not None:
            added.append((provider.key.header, provider.key.value))
        elif address.authorization is not None:
            added.append((b"authorization", address.authorization.encode("ascii")))
        self._added = [*added, *own]
        self._has_version = _ANTHROPIC_VERSION[0] in dict(own)
        self._dropped = _NOT_ASKED | {name for name, _ in own} | (_CREDENTIALS if added else set())

    def headers(self, client: RawHeaders, *, messages: bool) -> RawHeaders:
        """Return what goes to the provider of the headers that a client sent.

        All but hop-by-hop ones, the session cookies of our own servers, and, where the server has a
        key, the credentials of the client, which the key replaces. `messages`: the call is in the
        Messages dialect, which must name a version.
        """
        named = _named_by_connection(client)
        dropped = self._dropped | named if named else self._dropped
        headers = [pair for pair in client if pair[0] not in dropped]
        names = [name for name, _ in headers]
        if b"cookie" in names:
            headers = _without_own_cookies(headers)
        if messages and not self._has_version and _ANTHROPIC_VERSION[0] not in names:
            headers.append(_ANTHROPIC_VERSION)
        headers += self._added
        return headers


def response_headers(provider: RawHeaders) -> RawHeaders:
    """Return what goes to the client of the headers that a provider sent."""
    named = _named_by_connection(provider)
    dropped = _NOT_ANSWERED | named if named else _NOT_ANSWERED
    return [pair for pair in provider if pair[0] not in dropped]


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """Return the first value under `name`."""
    return next((value for known, value in headers if known == name), None)


def content_encoding(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return what all `content-encoding` lines name, in the order of application.

    None where they name none: without a line, or empty.
    """
    values = [value for known, value in headers if known == b"content-encoding"]
    return ", ".join(parse_encodings(values)) or None if values else None


def hide_key(data: bytes, provider: Provider) -> bytes:
    """Return `data` with the server's own key, and other secrets of it, replaced by `***`."""
    return Hider(provider.secrets).data(data) if provider.secrets else data


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Return the headers that `Connection` names: they are for the next hop only."""
    named = _NOTHING
    for name, value in headers:
        if name == b"connection" and value != b"keep-alive":
            named |= {token.strip().lower() for token in value.split(b",")}
    return named


def _without_own_cookies(headers: RawHeaders) -> RawHeaders:
    kept: RawHeaders = []
    for name, value in headers:
        if name != b"cookie":
            kept.append((name, value))
            continue
        cookies = [cookie.strip() for cookie in value.split(b";")]
        others = [c for c in cookies if c and not c.startswith(_OWN_COOKIES)]
        if others:
            kept.append((name, b"; ".join(others)))
    return kept
