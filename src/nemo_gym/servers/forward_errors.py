"""A provider's error on its way to a client: the server's own secrets never get through. Pure.

Head and body go in, the same come out with every secret hidden. A body that cannot be looked into
(half of one, or one that does not unpack) is told of in its place, in the client's dialect.
"""

from nemo_gym.capture.hiding import Hider
from nemo_gym.servers.forward_body import decoded
from nemo_gym.servers.forward_headers import header, hide_key
from nemo_gym.servers.provider import Provider
from nemo_gym.transport.base import RawHeaders
from nemo_gym.wire.dialects import Dialect, error_body

__all__ = ["hidden_beginning", "without_key"]

_MOST_UNPACKED = 16 << 20
_SHOWN = 2000
_FRAMING = frozenset((b"content-length", b"content-encoding"))


def without_key(
    status: int,
    headers: RawHeaders,
    body: bytes,
    provider: Provider,
    dialect: Dialect,
    *,
    whole: bool,
) -> tuple[RawHeaders, bytes]:
    """Return an error answer in which no secret of the server can be read.

    `whole`: nothing follows `body`; otherwise what follows is not to be passed on.
    """
    headers = [(name, hide_key(value, provider)) for name, value in headers]
    encoding = (header(headers, b"content-encoding") or b"identity").decode("latin-1")
    if not whole:
        began = hidden_beginning(body, provider) if encoding == "identity" else b""
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
    hidden = hide_key(plain, provider)
    if hidden == plain:
        return headers, body
    headers = [pair for pair in headers if pair[0] not in _FRAMING]
    return [*headers, (b"content-length", b"%d" % len(hidden))], hidden


def hidden_beginning(body: bytes, provider: Provider) -> bytes:
    """Return what came of a body, without secrets and without what may be the start of one."""
    hider = Hider(provider.secrets)
    return hider.beginning(hider.data(body))


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
