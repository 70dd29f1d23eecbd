"""Which values of a configuration are secret, and how they are kept out of everything shown.

A value is secret by the name of its key (`api_key`, `*_token`, `password`, `authorization`, …), as
a header or query parameter that is sent along (`extra_headers`), as user information or a key
parameter of a URL, or by having been read from an environment variable with such a name. No I/O.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from urllib.parse import unquote, unquote_plus

from nemo_gym.config.spellings import SecretFinder

__all__ = [
    "HIDDEN",
    "RedactingFilter",
    "Redactor",
    "collect_secrets",
    "hide",
    "is_secret_key",
    "is_secret_path",
]

HIDDEN = "***"
"""What stands where a secret was."""

SHORTEST_REDACTED = 6
"""Shorter values (`EMPTY`, `none`) are placeholders: taking them out of every text would garble it.
They are still hidden where they stand, by the name of their key."""

_SECRET_KEY = re.compile(
    r"(^|_)(api_?keys?|(access|secret|private|signing|auth|account|master|license|subscription"
    r"|functions?|service|encryption|litellm)_keys?|tokens?|secrets?|passwords?|passwd|pwd"
    r"|passphrase|credentials?|authorization|bearer|cookies?|jwts?|sig|connection_string)$"
    # `Helicone-Auth`, `X-Any-Key`: names of headers. A bare `auth` or `key` may be anything.
    r"|[a-z0-9]_auth$|^x_([a-z0-9]+_)*(key|signature)$"
)
# `max_tokens: 512` is a count and `eos_token: </s>` is vocabulary.
_HARMLESS_TOKEN = re.compile(
    r"(^|_)((max|min|num|n|total|input|output|prompt|completion|reasoning|cached|thinking|budget"
    r"|bos|eos|pad|unk|sep|cls|mask|stop|start|end|special|image)(_[a-z]+)*_tokens?)$"
)
# Nobody knows what a provider, or a proxy before it, takes for a credential.
_SENT = re.compile(r"(^|_)headers$|(^|_)(extra|default|custom|additional)_query(_params?)?$")
_SENT_HOWEVER_WRITTEN = re.compile(r"(^|_)(extra|default|custom|additional)_headers$")
# What is under these names is the same for everyone; taken out of all texts it would garble them.
_HARMLESS_SENT = frozenset(
    (
        "accept", "accept_charset", "accept_encoding", "accept_language", "anthropic_beta",
        "anthropic_version", "api_version", "cache_control", "connection", "content_type",
        "openai_beta", "user_agent",
    )
)  # fmt: skip
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_USERINFO = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<info>[^/?#\s@]+(?:@[^/?#\s@]+)*)@"
)
_URL_PARAMETER = re.compile(r"(?P<name>[?&;]([^=&#\s]+)=)(?P<value>[^&#\s]+)")
_SCHEMES = re.compile(r"(?:bearer|basic|token|apikey|digest)\s+(?P<rest>\S.*)", re.IGNORECASE)


def is_secret_key(name: str) -> bool:
    """Return whether a key of this name holds a secret."""
    plain = _plain_name(name)
    return bool(_SECRET_KEY.search(plain)) and not _HARMLESS_TOKEN.search(plain)


def is_secret_path(path: Iterable[str]) -> bool:
    """Return whether the value under these keys, the outermost first, is secret by their names."""
    here = _Place.OPEN
    for key in path:
        here = _below(here, key, {})
    return here is not _Place.OPEN


def collect_secrets(tree: object) -> frozenset[str]:
    """Return every secret value found anywhere in a tree of mappings, lists and values."""
    return frozenset(_collect(tree, _Place.OPEN))


def hide(tree: Mapping[str, object], secrets: Iterable[str] = ()) -> dict[str, object]:
    """Return a copy of `tree` in which no secret can be read.

    `secrets` are values known to be secret beside those that the tree itself shows to be.
    """
    redactor = Redactor({*secrets, *collect_secrets(tree)})
    shown = _hide(tree, redactor, _Place.OPEN)
    return shown if isinstance(shown, dict) else {}


class Redactor:
    """Takes secrets out of text: in clear, and escaped as in JSON, Python, a URL or HTML."""

    __slots__ = ("_finder",)

    def __init__(self, secrets: Iterable[str]) -> None:
        self._finder = SecretFinder(s for s in secrets if len(s) >= SHORTEST_REDACTED)

    def redact(self, text: str) -> str:
        """Return `text` with every secret replaced by `***`."""
        return self._finder.hidden(text, HIDDEN)

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


class _Place(Enum):
    """What a value is by the keys above it."""

    OPEN = 1
    SENT = 2
    """A mapping of headers or query parameters that go along with every request."""
    SECRET = 3


def _plain_name(name: str) -> str:
    return _CAMEL.sub("_", name).lower().replace("-", "_").replace(".", "_").replace(" ", "_")


def _below(here: _Place, key: str, value: object) -> _Place:
    """Return the place of `value` under `key` of a mapping at `here`."""
    if here is _Place.SECRET or is_secret_key(key):
        return _Place.SECRET
    name = _plain_name(key)
    if here is _Place.SENT:
        return _Place.OPEN if name in _HARMLESS_SENT else _Place.SECRET
    if isinstance(value, Mapping):
        return _Place.SENT if _SENT.search(name) else _Place.OPEN
    return _Place.SECRET if _SENT_HOWEVER_WRITTEN.search(name) else _Place.OPEN


def _collect(value: object, here: _Place) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _collect(below, _below(here, str(key), below))
    elif isinstance(value, list | tuple):
        for below in value:
            yield from _collect(below, here)
    elif isinstance(value, bool) or value is None or value == "":
        return
    elif here is _Place.SECRET:
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


def _hide(value: object, redactor: Redactor, here: _Place) -> object:
    if isinstance(value, Mapping):
        return {
            redactor.redact(str(key)): _hide(below, redactor, _below(here, str(key), below))
            for key, below in value.items()
        }
    if isinstance(value, list | tuple):
        return [_hide(below, redactor, here) for below in value]
    if here is _Place.SECRET:
        # Null and booleans say only whether it is set.
        return value if value is None or isinstance(value, bool) or value == "" else HIDDEN
    if isinstance(value, str):
        return _hide_url(redactor.redact(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if redactor.redact(str(value)) == str(value) else HIDDEN
    return value


def _hide_url(text: str) -> str:
    """Hide by place what may be too short to be redacted by value."""
    if "://" not in text and "?" not in text:
        return text
    text = _USERINFO.sub(rf"\g<scheme>{HIDDEN}@", text)
    return _URL_PARAMETER.sub(
        lambda m: f"{m['name']}{HIDDEN}" if _is_secret_parameter(m[2]) else m[0], text
    )
