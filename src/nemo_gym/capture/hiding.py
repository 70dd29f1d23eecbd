"""Secrets out of what is kept of a call that failed. Pure.

Providers repeat keys, URLs and whole headers in their error texts. A row holds such a text, and
must not hold what is secret in it: the credentials that the client sent, and those of the server.
`Hider` is for prose, `BodyHider` for bodies, in which the words of a protocol must stand.
"""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from bisect import bisect_right
from collections.abc import Generator, Iterable
from functools import lru_cache
from urllib.parse import unquote, unquote_plus

from nemo_gym.config.spellings import SecretFinder, without
from nemo_gym.wire.json import LENIENT_DECODER, is_array, is_object

__all__ = ["SHORTEST_SECRET", "BodyHider", "Hider", "credentials_of", "looks_secret"]

_HIDDEN = "***"
SHORTEST_SECRET = 6
"""Shorter ones (`EMPTY`, `none`) are placeholders: without them every text would be garbled."""
_ANYWHERE = r"(api[-_]?key|key|token|secret|password|auth|jwt|sig|signature|credentials?)"
_NAMES = re.compile(rf"authorization|cookie|(^|[-_]){_ANYWHERE}$")
# A client may send names of a megabyte, and another one each time.
_LONGEST_REMEMBERED = 64
_PARAMETERS = re.compile(rf"(^|[-_]){_ANYWHERE}$")

# `sk-1234`, `hunter2`: shorter ones are as likely to be words of a model's answer.
_SHORTEST_SURE = 8
_SHORTEST_WITH_SIGNS = 12
_LONGEST_WORD = 16
_LONGEST_PHRASE = 20
_SIGNS = re.compile(r"[^A-Za-z\s._-]")
_NO_LETTERS = re.compile(r"[^A-Za-z]")
# The values of these are words of a protocol or names that others refer to.
_STRUCTURE = re.compile(
    r"(?:type|role|status|object|finish_reason|stop_reason|model|id|[a-z_]+_id)"
)
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:(?P<closed>")(?P<key>\s*+:)?)?', re.DOTALL)
_ERROR = re.compile(r'"error"(?!\s*:\s*null)(?P<member>\s*:\s*)?+')
# As many characters of a secret, each spelled at its longest, are looked at where a text was cut.
_LONGEST_SPELLING = 40


def looks_secret(value: str) -> bool:
    """Say whether a credential can be nothing else: no word, no placeholder such as `ollama`.

    Eight characters or more with letters and digits among them; without digits, 12 with letters of
    both cases and signs as base64 has them, 16 letters of both cases in a row, or 20 without space.
    """
    if len(value) < _SHORTEST_SURE or not any(c.isalpha() for c in value):
        return False
    if any(c.isdigit() for c in value):
        return True
    if len(value) >= _LONGEST_PHRASE and " " not in value:
        return True
    mixed = not (value.islower() or value.isupper())
    if mixed and len(value) >= _SHORTEST_WITH_SIGNS and _SIGNS.search(value):
        return True
    longest = max(_NO_LETTERS.split(value), key=len)
    # `Authorization` is a word.
    words = longest.islower() or longest.isupper() or longest[1:].islower()
    return len(longest) >= _LONGEST_WORD and not words


def credentials_of(headers: Iterable[tuple[bytes, bytes]], query: bytes) -> frozenset[str]:
    """Return the credentials that a request carries in its headers and its query."""
    found: set[str] = set()
    for raw_name, raw_value in headers:
        known = len(raw_name) <= _LONGEST_REMEMBERED
        name = (_credential_name if known else _credential_name.__wrapped__)(raw_name)
        if name is not None:
            found.update(_in_header(name, raw_value.decode("latin-1").strip()))
    for part in query.decode("latin-1").split("&"):
        name, _, value = part.partition("=")
        if _PARAMETERS.search(name.lower()):
            found |= {value, unquote(value), unquote_plus(value)}
    return frozenset(secret for secret in found if len(secret) >= SHORTEST_SECRET)


@lru_cache(maxsize=1024)
def _credential_name(raw_name: bytes) -> str | None:
    """Return the name of a header in lower case if its value is a credential.

    Remembered: clients send the same dozen of headers with each call, and to look at them took two
    thirds of what the id of a session costs a call.
    """
    name = raw_name.decode("latin-1").lower()
    return name if _NAMES.search(name) else None


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
        self._finder = SecretFinder(s for s in secrets if len(s) >= SHORTEST_SECRET)

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


class BodyHider:
    """Puts `***` in the place of secrets in a body: JSON, events of JSON, or prose. Counts them.

    `keys` are hidden wherever they stand. `secrets` that look like nothing else (`looks_secret`)
    are hidden too, but for the values of `type`, `role`, `status`, `object`, `finish_reason`,
    `stop_reason`, `model` and ids. The others may as well be words: they are hidden in the texts
    of an error only, and never as the name of a member. The bodies are errors where `in_error` says
    so; elsewhere what stands under `error` is one, and an event of that type.
    """

    __slots__ = ("_all", "_in_error", "_keys", "_sure", "_weak", "hidden")

    def __init__(self, keys: Iterable[str], secrets: Iterable[str], *, in_error: bool) -> None:
        known = {secret for secret in keys if len(secret) >= SHORTEST_SECRET}
        others = {secret for secret in secrets if len(secret) >= SHORTEST_SECRET} - known
        sure = {secret for secret in others if looks_secret(secret)}
        self._keys = SecretFinder(known)
        self._sure = SecretFinder(sure)
        self._in_error = in_error
        self._weak = SecretFinder(others - sure)
        # `Bearer sk-…` begins with a word, and what is secret of it is here by itself.
        parts = known | others if in_error else known | sure
        self._all = [s for s in parts if not any(o != s and o in s for o in parts)]
        self.hidden = 0
        """How many places were hidden so far."""

    def text(self, text: str) -> str:
        """Return the text without secrets. JSON stays JSON."""
        spans = self._spans(text)
        if spans:
            self.hidden += len(spans)
            text = without(text, spans, _HIDDEN)
        return text

    def data(self, data: bytes) -> bytes:
        """Return the bytes of a text without secrets."""
        before = self.hidden
        text = self.text(data.decode("utf-8", "surrogateescape"))
        return data if self.hidden == before else text.encode("utf-8", "surrogateescape")

    def cut_outside_secrets(self, text: str, place: int) -> int:
        """Return where to cut a text at `place`, or before it where that is within a secret."""
        finders = (self._keys, self._sure, self._weak)
        spans = [span for finder in finders for span in finder.spans(text)]
        return min((start for start, end in spans if start < place < end), default=place)

    def start_at_end(self, text: str) -> int:
        """Return where the end of a cut text begins that may be the start of a secret.

        The length of the text, where it has no such end.
        """
        if not self._all:
            return len(text)
        start = max(0, len(text) - _LONGEST_SPELLING * max(map(len, self._all)))
        return start + SecretFinder(self._all).start_at_end(text[start:])

    def beginning(self, text: str) -> str:
        """Return a text that was cut, `***` in place of an end that may begin a secret."""
        end = self.start_at_end(text)
        if end == len(text):
            return text
        self.hidden += 1
        return text[:end] + _HIDDEN

    def _spans(self, text: str) -> list[tuple[int, int]]:
        known, sure, weak = (f.spans(text) for f in (self._keys, self._sure, self._weak))
        if not (known or sure or weak):
            return []
        strings = _Strings(text)
        found = [strings.within(span) for span in known]
        found += [strings.within(span) for span in sure if not strings.is_structure(span)]
        found += [
            strings.within(span)
            for span in weak
            if strings.is_prose(span) and (self._in_error or _is_of_error(text, *span))
        ]
        return _apart(found)


def _is_of_error(text: str, start: int, end: int) -> bool:
    """Say whether this place is within the `error` of its line, or its line is one as a whole."""
    last = text.find("\n", end)
    line = text.rfind("\n", 0, start) + 1, len(text) if last < 0 else last
    for error in _ERROR.finditer(text, *line):
        if error["member"] is None:
            return True  # `"type":"error"`
        if error.end() > start:
            return False
        try:
            _, after = LENIENT_DECODER.raw_decode(text, error.end())
        except (ValueError, RecursionError):  # it is cut
            after = line[1]
        if end <= after:
            return True
    return False


class _Strings:
    """The JSON strings of a text, of a member's name or value each; the text may be cut."""

    def __init__(self, text: str) -> None:
        self._ends: list[int] = []
        self._starts: list[int] = []
        self._names: list[str | None] = []
        """The name of the member whose value it is; None: it is a name."""
        self._is_json = text.lstrip("\ufeff \t\r\n").startswith(("{", "[", "data:", "event:", ":"))
        name = ""
        for found in _STRING.finditer(text):
            is_name = found["key"] is not None
            self._starts.append(found.start() + 1)
            self._ends.append(found.end("closed") - 1 if found["closed"] else found.end())
            self._names.append(None if is_name else name)
            if is_name:
                name = text[self._starts[-1] : self._ends[-1]]

    def _at(self, place: int) -> int | None:
        index = bisect_right(self._starts, place) - 1
        return index if index >= 0 and place < self._ends[index] else None

    def within(self, span: tuple[int, int]) -> tuple[int, int]:
        """Return the span as far as it is in one string: what is left must stay JSON."""
        index = self._at(span[0])
        return span if index is None else (span[0], min(span[1], self._ends[index]))

    def is_structure(self, span: tuple[int, int]) -> bool:
        index = self._at(span[0])
        name = "" if index is None else self._names[index]
        return name is not None and _STRUCTURE.fullmatch(name) is not None

    def is_prose(self, span: tuple[int, int]) -> bool:
        index = self._at(span[0])
        if index is None:
            return not self._is_json
        name = self._names[index]
        return name is not None and _STRUCTURE.fullmatch(name) is None


def _apart(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans with those that overlap made one."""
    apart: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if apart and start < apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]))
        else:
            apart.append((start, end))
    return apart
