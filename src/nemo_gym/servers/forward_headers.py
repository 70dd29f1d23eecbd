"""Header lines between a client and a provider: what passes, what does not, whose key. Pure."""

from collections.abc import Iterable

from nemo_gym.capture.hiding import Hider
from nemo_gym.servers.provider import Provider
from nemo_gym.transport.address import Address
from nemo_gym.transport.base import RawHeaders

__all__ = ["header", "hide_key", "request_headers", "response_headers"]

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
_OWN_COOKIES = b"ng_"


def request_headers(
    client: Iterable[tuple[bytes, bytes]],
    provider: Provider,
    address: Address,
    *,
    messages: bool,
) -> RawHeaders:
    """Return what goes to `provider` at `address` of the headers that a client sent.

    All but hop-by-hop ones, the session cookies of our own servers, and, where the server has a
    key, the credentials of the client, which the key replaces. `messages`: the call is in the
    Messages dialect, which must name a version.
    """
    pairs = list(client)
    dropped = _NOT_ASKED | _named_by_connection(pairs)
    if provider.key is not None or address.authorization is not None:
        dropped |= _CREDENTIALS
    if provider.headers:
        dropped |= {name.lower().encode("latin-1") for name in provider.headers}
    headers = [pair for pair in pairs if pair[0] not in dropped]
    if any(name == b"cookie" for name, _ in headers):
        headers = _without_own_cookies(headers)
    if messages and header(headers, _ANTHROPIC_VERSION[0]) is None:
        headers.append(_ANTHROPIC_VERSION)
    if provider.key is not None:
        headers.append((provider.key.header, provider.key.value))
    elif address.authorization is not None:
        headers.append((b"authorization", address.authorization.encode("ascii")))
    for name, value in provider.headers.items():
        headers.append((name.lower().encode("latin-1"), value.encode("latin-1")))
    return headers


def response_headers(provider: RawHeaders) -> RawHeaders:
    """Return what goes to the client of the headers that a provider sent."""
    dropped = _NOT_ANSWERED | _named_by_connection(provider)
    return [pair for pair in provider if pair[0] not in dropped]


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """Return the first value under `name`."""
    return next((value for known, value in headers if known == name), None)


def hide_key(data: bytes, provider: Provider) -> bytes:
    """Return `data` with the server's own key, and other secrets of it, replaced by `***`."""
    return Hider(provider.secrets).data(data) if provider.secrets else data


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Return the headers that `Connection` names: they are for the next hop only."""
    return frozenset(
        token.strip().lower()
        for name, value in headers
        if name == b"connection"
        for token in value.split(b",")
    )


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
