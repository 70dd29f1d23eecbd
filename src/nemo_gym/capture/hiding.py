"""Secrets out of what is kept of a call that failed. Pure.

Providers repeat keys, URLs and whole headers in their error texts. A row holds such a text, and
must not hold what is secret in it: the credentials that the client sent, and those of the server.
"""

import json
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Generator, Iterable
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from nemo_gym.wire.json import is_array, is_object

__all__ = ["Hider", "credentials_of"]

_HIDDEN = "***"
# Shorter ones (`EMPTY`, `none`) are placeholders: without them every text would be garbled.
_SHORTEST = 6
# So few characters of a secret (`sk-`) may as well be the end of a word.
_TELLS_NOTHING = 3
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

    __slots__ = ("_forms", "_pattern")

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for s in secrets if len(s) >= _SHORTEST for form in _forms(s)}
        self._forms = forms
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        return text if self._pattern is None else self._pattern.sub(_HIDDEN, text)

    def data(self, data: bytes) -> bytes:
        """Return the bytes of a text without secrets."""
        text = data.decode("utf-8", "surrogateescape")
        return self.text(text).encode("utf-8", "surrogateescape")

    def beginning(self, data: bytes) -> bytes:
        """Return the bytes of a text that was cut, without an end that may begin a secret."""
        starts = (_start_at_end(data, form.encode("utf-8", "replace")) for form in self._forms)
        return data[: len(data) - max(starts, default=0)]

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
        return self._pattern is not None and bool(
            self._pattern.search(data.decode("utf-8", "replace"))
        )


def _start_at_end(data: bytes, form: bytes) -> int:
    """Return how many bytes at the end of `data` are the first ones of `form`."""
    longest = min(len(data), len(form) - 1)
    return next((n for n in range(longest, _TELLS_NOTHING, -1) if data.endswith(form[:n])), 0)


def _forms(secret: str) -> Generator[str]:
    yield secret
    yield quote(secret, safe="", errors="replace")
    yield quote(secret, errors="replace")
    yield quote_plus(secret, errors="replace")
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
