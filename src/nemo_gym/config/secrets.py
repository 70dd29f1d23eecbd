"""Which values of a configuration are secret, and how they are kept out of everything shown.

A value is secret by the name of its key (`api_key`, `*_token`, `password`, `authorization`, …), as
user information or a key parameter of a URL, or by having been read from an environment variable
with such a name. No I/O.
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus, unquote, unquote_plus

__all__ = [
    "HIDDEN",
    "RedactingFilter",
    "Redactor",
    "collect_secrets",
    "hide",
    "is_secret_key",
]

HIDDEN = "***"
"""What stands where a secret was."""

SHORTEST_REDACTED = 6
"""Shorter values (`EMPTY`, `none`) are placeholders: taking them out of every text would garble it.
They are still hidden where they stand, by the name of their key."""

_SECRET_KEY = re.compile(
    r"(^|_)(api_?keys?|(access|secret|private|signing|auth|account|master|license)_keys?|tokens?"
    r"|secrets?|passwords?|passwd|pwd|passphrase|credentials?|authorization|bearer|cookies?)$"
)
# `max_tokens: 512` is a count and `eos_token: </s>` is vocabulary.
_HARMLESS_TOKEN = re.compile(
    r"(^|_)((max|min|num|n|total|input|output|prompt|completion|reasoning|cached|thinking|budget"
    r"|bos|eos|pad|unk|sep|cls|mask|stop|start|end|special|image)(_[a-z]+)*_tokens?)$"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_USERINFO = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<info>[^/?#\s@]+(?:@[^/?#\s@]+)*)@"
)
_URL_PARAMETER = re.compile(r"(?P<name>[?&;]([^=&#\s]+)=)(?P<value>[^&#\s]+)")
_SCHEMES = re.compile(r"(?:bearer|basic|token|apikey|digest)\s+(?P<rest>\S.*)", re.IGNORECASE)


def is_secret_key(name: str) -> bool:
    """Return whether a key of this name holds a secret."""
    plain = _CAMEL.sub("_", name).lower().replace("-", "_").replace(".", "_").replace(" ", "_")
    return bool(_SECRET_KEY.search(plain)) and not _HARMLESS_TOKEN.search(plain)


def collect_secrets(tree: object) -> frozenset[str]:
    """Return every secret value found anywhere in a tree of mappings, lists and values."""
    return frozenset(_collect(tree, secret=False))


def hide(tree: Mapping[str, object], secrets: Iterable[str] = ()) -> dict[str, object]:
    """Return a copy of `tree` in which no secret can be read.

    `secrets` are values known to be secret beside those that the tree itself shows to be.
    """
    redactor = Redactor({*secrets, *collect_secrets(tree)})
    return {redactor.redact(key): _hide(key, value, redactor) for key, value in tree.items()}


class Redactor:
    """Takes secrets out of text: in clear, percent-encoded, or escaped as in JSON."""

    __slots__ = ("_pattern",)

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for s in secrets if len(s) >= SHORTEST_REDACTED for form in _forms(s)}
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def redact(self, text: str) -> str:
        """Return `text` with every secret replaced by `***`."""
        return text if self._pattern is None else self._pattern.sub(HIDDEN, text)

    def __repr__(self) -> str:
        return "Redactor(…)"


class RedactingFilter(logging.Filter):
    """Redacts the message, and the traceback, of every record that passes."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite the record in place; let it pass."""
        record.msg = self._redactor.redact(record.getMessage())
        record.args = None
        if record.exc_info and record.exc_text is None:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = self._redactor.redact(record.exc_text)
        return True


def _collect(value: object, *, secret: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _collect(below, secret=secret or is_secret_key(str(key)))
    elif isinstance(value, list | tuple):
        for below in value:
            yield from _collect(below, secret=secret)
    elif isinstance(value, bool) or value is None or value == "":
        return
    elif secret:
        text = str(value)
        yield text
        scheme = _SCHEMES.fullmatch(text)
        if scheme:
            yield scheme["rest"]
    elif isinstance(value, str):
        yield from _secrets_of_url(value)


def _secrets_of_url(text: str) -> Iterator[str]:
    if "://" not in text and "?" not in text:
        return
    for found in _USERINFO.finditer(text):
        user, colon, password = found["info"].partition(":")
        part = password if colon else user
        yield part
        yield unquote(part)
        if colon:
            yield found["info"]
    for found in _URL_PARAMETER.finditer(text):
        if _is_secret_parameter(found[2]):
            yield found["value"]
            yield unquote(found["value"])
            yield unquote_plus(found["value"])


def _is_secret_parameter(name: str) -> bool:
    return name.lower() in {"key", "sig", "signature"} or is_secret_key(name)


def _hide(key: str, value: object, redactor: Redactor) -> object:
    if is_secret_key(key):
        return _hidden_whole(value)
    if isinstance(value, Mapping):
        return {redactor.redact(str(k)): _hide(str(k), v, redactor) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_hide("", below, redactor) for below in value]
    if isinstance(value, str):
        return _hide_url(redactor.redact(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if redactor.redact(str(value)) == str(value) else HIDDEN
    return value


def _hidden_whole(value: object) -> object:
    """Hide every value under a secret key; null and booleans say only whether it is set."""
    if isinstance(value, Mapping):
        return {key: _hidden_whole(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden_whole(below) for below in value]
    return value if value is None or isinstance(value, bool) or value == "" else HIDDEN


def _hide_url(text: str) -> str:
    """Hide by place what may be too short to be redacted by value."""
    if "://" not in text and "?" not in text:
        return text
    text = _USERINFO.sub(rf"\g<scheme>{HIDDEN}@", text)
    return _URL_PARAMETER.sub(
        lambda m: f"{m['name']}{HIDDEN}" if _is_secret_parameter(m[2]) else m[0], text
    )


def _forms(secret: str) -> Iterator[str]:
    yield secret
    # A value of the environment may hold bytes that are no text.
    yield quote(secret, safe="", errors="surrogateescape")
    yield quote(secret, errors="surrogateescape")
    yield quote_plus(secret, errors="surrogateescape")
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield repr(secret)[1:-1]
