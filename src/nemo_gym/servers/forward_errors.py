"""A provider's answer on its way to a client: no error shows the server's own secrets. Pure.

Head and body go in, the same come out with every secret hidden. A body that cannot be looked into
(half of one, or one that does not unpack) is told of in its place, in the client's dialect. Of an
answer that is no error by its status, what is looked for is the key alone: in a whole body
or the beginning of one (`freed`), and in the errors of a stream (`PassingKeys`).
"""

import re

from nemo_gym.capture.facts import CallFacts
from nemo_gym.capture.hiding import BodyHider
from nemo_gym.servers.forward_body import decoded
from nemo_gym.servers.forward_headers import header, hide_key
from nemo_gym.servers.provider import Provider
from nemo_gym.transport.base import RawHeaders
from nemo_gym.wire.dialects import Dialect, error_body

__all__ = ["PassingKeys", "freed", "hidden_beginning", "without_key"]

_MOST_UNPACKED = 16 << 20
_SHOWN = 2000
_FRAMING = frozenset((b"content-length", b"content-encoding"))
_ERROR = b'"error"'
_IS_ERROR = re.compile(rb'"error"(?!\s*:\s*null)')
_SPEAKS_OF_IT_BY = 512
"""Bytes of a body within which one that is an error says so."""
_NOT_PACKED = b'{[ \t\r\ndeir:"<'
"""What plain text, JSON or events may begin with, and nothing that is compressed."""
_LONGEST_PACKED = 4096
"""Bytes of a packed answer that is no error by its status, beyond which it is no error at all."""
_LONGEST_ERROR = 64 * 1024
_MARK = b"***"
_EVENT_ENDS = (b"\n\n", b"\r\r", b"\r\n\r\n")
_MOST_HELD = 64 * 1024


def freed(
    status: int,
    headers: RawHeaders,
    body: bytes,
    provider: Provider,
    dialect: Dialect,
    *,
    whole: bool,
    facts: CallFacts | None = None,
) -> "tuple[RawHeaders, bytes, PassingKeys | None]":
    """Return what a client may have of an answer, and what the pieces that follow go through.

    `whole`: nothing follows `body`. Nothing is to follow an error, whether or not it is whole.
    Noted in `facts`: how much was hidden, and that more may have to be.
    """
    if status >= 400:
        args = (status, headers, body, provider, dialect)
        return *without_key(*args, whole=whole, facts=facts), None
    if not provider.keys or (whole and not _may_show_key(status, body, provider)):
        return headers, body, None
    if facts is not None:
        facts.unsearched = True
    if whole:
        return *_without_key_in_success(headers, body, provider, facts), None
    passing = PassingKeys(provider, headers, facts, always=status >= 300)
    return passing.headers, passing.passed(body), passing


def without_key(
    status: int,
    headers: RawHeaders,
    body: bytes,
    provider: Provider,
    dialect: Dialect,
    *,
    whole: bool,
    facts: CallFacts | None = None,
) -> tuple[RawHeaders, bytes]:
    """Return an error answer in which no secret of the server can be read.

    `whole`: nothing follows `body`; otherwise what follows is not to be passed on. How much was
    hidden is noted in `facts`.
    """
    headers = [(name, hide_key(value, provider)) for name, value in headers]
    encoding = _encoding(headers)
    if not whole:
        began = hidden_beginning(body, provider) if encoding == _NONE else b""
        what = f"the provider answered {status}, and the end of its error did not come in time"
        return _told(status, headers, f"{what}{_shown(began)}", "upstream_error_cut", dialect)
    if not body:
        return headers, body
    try:
        plain = decoded(body, encoding, _MOST_UNPACKED)
    except (LookupError, ValueError) as problem:
        why = str(problem) if isinstance(problem, ValueError) else "it is not known"
        what = f"the provider answered {status}, with an error that cannot be read"
        message = f"{what} (content-encoding {encoding}: {why})"
        return _told(status, headers, message, "upstream_error_undecodable", dialect)
    hider = BodyHider(provider.keys, provider.secrets, in_error=True)
    hidden = hider.data(plain)
    if not hider.hidden:
        return headers, body
    _note(facts, hider.hidden)
    return _framed(headers, hidden), hidden


def _may_show_key(status: int, body: bytes, provider: Provider) -> bool:
    """Say whether a whole answer that is no error by its status has to be looked into.

    Cheap, since each call comes here.
    """
    if status >= 300 or body[:1] not in _NOT_PACKED or body.find(_ERROR, 0, _SPEAKS_OF_IT_BY) >= 0:
        return True
    for key in provider.needles:  # noqa: SIM110 - a generator costs as much as all else here
        if key in body:
            return True
    return False


def _without_key_in_success(
    headers: RawHeaders, body: bytes, provider: Provider, facts: CallFacts | None
) -> tuple[RawHeaders, bytes]:
    """Return a whole answer that is no error by its status, without the server's own key."""
    hider = BodyHider(provider.keys, (), in_error=True)
    headers = [(name, hider.data(value)) for name, value in headers]
    encoding = _encoding(headers)
    plain = body
    if encoding != _NONE:
        if len(body) > _LONGEST_PACKED:
            return headers, body
        try:
            plain = decoded(body, encoding, _LONGEST_ERROR)
        except (LookupError, ValueError):
            plain = body
    before = hider.hidden
    hidden = hider.data(plain)
    _note(facts, hider.hidden - before)
    if hider.hidden == before:
        return headers, body
    return _framed(headers, hidden), hidden


class PassingKeys:
    """Takes the server's key out of the errors of an answer whose pieces pass as they come.

    From a piece that speaks of an error on, or has the key, what comes is kept back up to the end
    of its event, and searched then. All other pieces pass as they are.
    """

    __slots__ = (
        "_always",
        "_edge",
        "_facts",
        "_held",
        "_hider",
        "_needles",
        "_on",
        "_sized",
        "headers",
    )

    def __init__(
        self, provider: Provider, headers: RawHeaders, facts: CallFacts | None, *, always: bool
    ) -> None:
        """Take what is known before the first piece. `always`: search every one."""
        self._hider = BodyHider(provider.keys, (), in_error=True)
        self._needles = provider.needles
        if always:
            headers = [(name, self._hider.data(value)) for name, value in headers]
        self.headers = headers
        """Of the answer, as the client gets them."""
        self._sized = header(headers, b"content-length") is not None
        self._facts = facts
        self._always = self._on = always
        self._held = bytearray()
        self._edge = b""

    def passed(self, piece: bytes, is_last: bool = False) -> bytes:
        """Return what goes to the client now that the next piece has come."""
        if not self._on:
            edge = self._edge
            window = edge + piece if edge else piece
            suspect = _ERROR in window and _IS_ERROR.search(window) is not None
            for needle in self._needles:
                suspect = suspect or needle in piece
            if not suspect:
                self._edge = b"" if piece[-1:] == b"\n" else window[-len(_ERROR) + 1 :]
                return piece
            self._on = True
            self._edge = b""
        held = self._held
        held += piece
        end = len(held) if is_last else _end_of_events(held)
        if not end:
            if len(held) < _MOST_HELD:
                return b""
            end = self._cut(held)
        ready = bytes(held[:end])
        del held[:end]
        self._on = self._always or bool(held)
        return self._searched(ready)

    def broken_off(self) -> bytes:
        """Return what was kept back and may be shown, once the answer broke off."""
        hidden = self._searched(bytes(self._held))
        self._held.clear()
        before = self._hider.hidden
        text = self._hider.beginning(hidden.decode("utf-8", "surrogateescape"))
        _note(self._facts, self._hider.hidden - before)
        return text.encode("utf-8", "surrogateescape")

    def _cut(self, held: bytearray) -> int:
        """Return how much may go of an event that is too long to be an error."""
        text = held.decode("utf-8", "surrogateescape")
        cut = self._hider.cut_outside_secrets(text, len(text) - _MOST_HELD // 4)
        return len(text[:cut].encode("utf-8", "surrogateescape"))

    def _searched(self, data: bytes) -> bytes:
        before = self._hider.hidden
        hidden = self._hider.data(data)
        found = self._hider.hidden - before
        if found:
            _note(self._facts, found)
            if self._sized:  # as long as was said
                mark = _MARK + b"*" * (len(data) - len(hidden))
                hidden = hidden.replace(_MARK, mark, 1)
        return hidden


def _end_of_events(data: bytearray) -> int:
    """Return where the last whole event ends; 0: there is none."""
    ends = [at + len(mark) for mark in _EVENT_ENDS if (at := data.rfind(mark)) >= 0]
    return max(ends, default=0)


_NONE = "identity"


def _encoding(headers: RawHeaders) -> str:
    """Return the content codings in the order in which they were applied, whatever the lines."""
    values = [value for name, value in headers if name == b"content-encoding"]
    return b", ".join(values).decode("latin-1") if values else _NONE


def _framed(headers: RawHeaders, body: bytes) -> RawHeaders:
    kept = [pair for pair in headers if pair[0] not in _FRAMING]
    return [*kept, (b"content-length", b"%d" % len(body))]


def _note(facts: CallFacts | None, count: int) -> None:
    if facts is not None and count:
        noted = facts.notes.get("hidden", 0)
        facts.notes["hidden"] = count + (noted if isinstance(noted, int) else 0)


def hidden_beginning(body: bytes, provider: Provider) -> bytes:
    """Return what came of a body, without secrets and without what may be the start of one."""
    hider = BodyHider(provider.keys, provider.secrets, in_error=True)
    text = hider.text(body.decode("utf-8", "surrogateescape"))
    text = text[: hider.start_at_end(text)]
    return text.encode("utf-8", "surrogateescape")


def _told(
    status: int, headers: RawHeaders, message: str, code: str, dialect: Dialect
) -> tuple[RawHeaders, bytes]:
    body = error_body(dialect, status, message, code)
    kept = [pair for pair in headers if pair[0] not in _FRAMING and pair[0] != b"content-type"]
    length = (b"content-length", b"%d" % len(body))
    return [*kept, (b"content-type", b"application/json"), length], body


def _shown(began: bytes) -> str:
    text = began.decode("utf-8", "replace")[:_SHOWN].strip()
    return f"; it began: {text}" if text else ""
