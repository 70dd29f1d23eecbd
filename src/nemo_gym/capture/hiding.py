"""Secrets out of what is kept of a call that failed. Pure.

Providers repeat keys, URLs and whole headers in their error texts. A row holds such a text, and
must not hold what is secret in it: the credentials that the client sent, and those of the server.
"""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Generator, Iterable
from urllib.parse import unquote, unquote_plus

from nemo_gym.config.spellings import SecretFinder
from nemo_gym.wire.json import is_array, is_object

__all__ = ["Hider", "credentials_of"]

_HIDDEN = "***"
# Shorter ones (`EMPTY`, `none`) are placeholders: without them every text would be garbled.
_SHORTEST = 6
_ANYWHERE = r"(api[-_]?key|key|token|secret|password|auth|jwt|sig|signature|credentials?)"
_NAMES = re.compile(rf"authorization|cookie|(^|[-_]){_ANYWHERE}$")
_PARAMETERS = re.compile(rf"(^|[-_]){_ANYWHERE}$")


def credentials_of(headers: Iterable[tuple[bytes, bytes]], query: bytes) -> frozenset[str]:
    """Return the credentials that a request carries in its headers and its query."""
    found: set[str] = set()
    for raw_name, raw_value in headers:
        name = raw_name.decode("latin-1").lower()
        if _NAMES.search(name):
            found.update(_in_header(name, raw_value.decode("latin-1").strip()))
    for part in query.decode("latin-1").split("&"):
        name, _, value = part.partition("=")
        if _PARAMETERS.search(name.lower()):
            found |= {value, unquote(value), unquote_plus(value)}
    return frozenset(secret for secret in found if len(secret) >= _SHORTEST)


def _in_header(name: str, value: str) -> Generator[str]:
    if "cookie" in name:
        for cookie in value.split(";"):
            yield cookie.partition("=")[2].strip()
        return
    yield value
    scheme, _, rest = value.partition(" ")
    yield rest.strip()
    if scheme.lower() == "basic":
        try:
            pair = b64decode(rest, validate=True).decode("latin-1")
        except NotBase64:
            return
        yield pair
        yield pair.partition(":")[2]


class Hider:
    """Puts `***` in the place of every one of `secrets`, however it is spelled."""

    __slots__ = ("_finder",)

    def __init__(self, secrets: Iterable[str]) -> None:
        self._finder = SecretFinder(s for s in secrets if len(s) >= _SHORTEST)

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        return self._finder.hidden(text, _HIDDEN)

    def data(self, data: bytes) -> bytes:
        """Return the bytes of a text without secrets."""
        text = data.decode("utf-8", "surrogateescape")
        return self.text(text).encode("utf-8", "surrogateescape")

    def beginning(self, data: bytes) -> bytes:
        """Return the bytes of a text that was cut, without an end that may begin a secret."""
        text = data.decode("utf-8", "surrogateescape")
        return text[: self._finder.start_at_end(text)].encode("utf-8", "surrogateescape")

    def value(self, value: object) -> object:
        """Return a JSON value without secrets in its texts and keys; numbers stay."""
        if isinstance(value, str):
            return self.text(value)
        if is_object(value):
            return {self.text(key): self.value(below) for key, below in value.items()}
        if is_array(value):
            return [self.value(below) for below in value]
        return value

    def is_in(self, data: bytes) -> bool:
        """Say whether a secret is anywhere in the bytes of a text."""
        return self._finder.is_in(data.decode("utf-8", "replace"))
