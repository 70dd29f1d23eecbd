"""Where a server is: a base URL as people write it in, host, port and path out. Pure.

A base URL may end in `/v1`, in another version, in a slash, or in none of these; it may carry a
query (`?api-version=…`), a user and a password. What is shown of it never carries the last three.
"""

import re
from base64 import b64encode
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

__all__ = ["Address", "AddressInvalid", "is_loopback", "parse_address"]

_DEFAULT_PORTS = {"http": 80, "https": 443}
_VERSION_SEGMENT = re.compile(r"/v\d+[^/]*(?=/|$)")
# What a request line can carry: visible ASCII. Everything else must have been percent-encoded.
_VISIBLE = re.compile(r"[!-~]*")


class AddressInvalid(ValueError):
    """A URL that names no HTTP server."""


@dataclass(frozen=True, slots=True)
class Address:
    """One HTTP server, and the path under which its API lies."""

    scheme: str
    """`http` or `https`."""
    host: str
    """Name or literal, IPv6 without brackets, lower case."""
    port: int
    path: str = ""
    """Percent-encoded, without a slash at its end; empty when the API lies at the root."""
    query: str = ""
    """What every call's query begins with, percent-encoded, without the question mark."""
    authorization: str | None = None
    """Value of an `authorization` header, where the URL carried a user."""

    @property
    def host_header(self) -> str:
        """The value of `Host`: the port is left out where it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Scheme, host and port, which is all that ever appears in a message."""
        return f"{self.scheme}://{self.host_header}"

    def target(self, route: str) -> str:
        """Return path and query to ask for, so that `route` (`/v1/…`, maybe a query) is reached.

        A base path that names a version itself takes the place of the route's `/v1`:
        `https://h/api/paas/v4` + `/v1/models` is `/api/paas/v4/models`.
        """
        path, _, query = route.partition("?")
        if _VERSION_SEGMENT.search(self.path):
            path = path.removeprefix("/v1")
        query = "&".join(part for part in (self.query, query) if part)
        return f"{self.path}{path}" + (f"?{query}" if query else "")


def parse_address(url: str) -> Address:
    """Return the address that `url` names; raises `AddressInvalid` without repeating a secret."""
    text = url.strip()
    shown = _without_credentials(text)
    if any(character <= " " or character == "\x7f" for character in text):
        # The standard library would leave them out and read another URL than was written.
        raise AddressInvalid(f"{shown!r} holds blanks or control characters")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as problem:
        raise AddressInvalid(f"the URL cannot be read: {problem}") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise AddressInvalid(f"{shown!r} does not begin with http:// or https://")
    if not parts.hostname:
        raise AddressInvalid(f"{shown!r} names no host")
    if not _VISIBLE.fullmatch(parts.path + parts.query):
        raise AddressInvalid(f"{shown!r} holds characters that must be percent-encoded")
    return Address(
        scheme=parts.scheme,
        host=_ascii_host(parts.hostname, shown),
        port=_DEFAULT_PORTS[parts.scheme] if port is None else port,
        path=parts.path.rstrip("/"),
        query=parts.query,
        authorization=_basic(parts.username, parts.password),
    )


def is_loopback(host: str) -> bool:
    """Say whether `host` is this machine by its very name."""
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None


def _ascii_host(host: str, shown: str) -> str:
    try:
        name = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        raise AddressInvalid(f"{shown!r} names a host that cannot be one") from None
    if not _VISIBLE.fullmatch(name):
        raise AddressInvalid(f"{shown!r} names a host that cannot be one")
    return name


def _basic(user: str | None, password: str | None) -> str | None:
    if user is None:
        return None
    pair = f"{unquote(user)}:{unquote(password or '')}"
    return "Basic " + b64encode(pair.encode()).decode("ascii")


def _without_credentials(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    host = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    return f"{scheme}{separator}{host}" if separator else url.partition("?")[0]
