"""A call in, the bytes of its request head out. Pure; refuses what would forge a second header."""

from nemo_gym.transport.base import Call

__all__ = ["CallInvalid", "request_head"]

_OWN = frozenset((b"host", b"content-length", b"connection", b"transfer-encoding", b"keep-alive"))
_BODILESS = frozenset(("GET", "HEAD", "DELETE", "OPTIONS"))


class CallInvalid(ValueError):
    """A call that cannot be put on the wire: a line break or a blank where none may be."""


def request_head(call: Call, *, host: bytes, target: str, extra: bytes = b"") -> bytes:
    """Return request line and headers for `call`, the blank line included.

    `host` is the value of `Host`, `target` what stands in the request line (the absolute URL for a
    plain proxy), `extra` whole header lines to add. Framing headers of the call are replaced by
    the transport's own. Raises `CallInvalid`, without the value: it may be a secret.
    """
    headers = [(n, v) for n, v in call.headers if n not in _OWN]
    if call.body or call.method not in _BODILESS:
        headers.append((b"content-length", b"%d" % len(call.body)))
    lines = b"".join([b"%b: %b\r\n" % pair for pair in headers])
    try:
        first = f"{call.method} {target} HTTP/1.1\r\n".encode("ascii")
    except UnicodeEncodeError:
        raise CallInvalid("the request line holds characters that must be encoded") from None
    head = b"%bhost: %b\r\n%b%b\r\n" % (first, host, lines, extra)
    expected = len(headers) + 3 + extra.count(b"\n")
    if head.count(b"\n") != expected or head.count(b"\r") != expected or b"\0" in head:
        raise CallInvalid("a header, the method or the path holds a line break or a NUL")
    if first.count(b" ") != 2:
        raise CallInvalid("the method or the path holds a blank")
    return head
