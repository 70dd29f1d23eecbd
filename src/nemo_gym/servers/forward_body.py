"""The body of a request to a provider: bytes in, the same bytes with a few members set out. Pure.

Only the outermost object is taken apart: every value that is not set passes as the bytes it came
as. What is no JSON object passes whole, for the provider to judge.
"""

import gzip
import io
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import brotli
import msgspec
import zstandard

__all__ = ["BodyTooLarge", "Members", "decoded", "encodings"]

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KEY = msgspec.json.Encoder()
# So many bytes of zstd unpack to 8 MB at most, so that a limit is never overrun by more.
_ZSTD_STEP = 256


class BodyTooLarge(ValueError):
    """A compressed body that unpacks to more than is allowed."""


@dataclass(frozen=True, slots=True)
class Members:
    """What to set in the outermost object of a body. Values are JSON text."""

    always: Mapping[str, bytes] = field(default_factory=dict)
    """Set or replaced."""
    absent: Mapping[str, bytes] = field(default_factory=dict)
    """Set where the body has no such member."""

    def __bool__(self) -> bool:
        return bool(self.always or self.absent)

    def put_into(self, body: bytes) -> bytes:
        """Return `body` with these members.

        As it is where it is no JSON object, or nested too deeply to be read.
        """
        if not self:
            return body
        try:
            found = _MEMBERS.decode(body)
        except (msgspec.MsgspecError, RecursionError):
            return self._put_into_lax(body)
        members: dict[str, bytes | msgspec.Raw] = {**self.absent, **found, **self.always}
        parts = []
        for key, value in members.items():
            parts.append(b",%b:" % _KEY.encode(key))
            parts.append(value)
        return b"{" + b"".join(parts)[1:] + b"}"

    def _put_into_lax(self, body: bytes) -> bytes:
        """Do the same for what Python writes and reads but JSON does not know (`NaN`)."""
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            return body
        if not isinstance(found, dict):
            return body
        absent = {key: json.loads(value) for key, value in self.absent.items()}
        always = {key: json.loads(value) for key, value in self.always.items()}
        try:
            return json.dumps({**absent, **found, **always}, separators=(",", ":")).encode()
        except RecursionError:  # writing goes less deep than reading
            return body


def decoded(body: bytes, encoding: str, limit: int) -> bytes:
    """Return `body` unpacked; `encoding` is a content coding, several are separated by commas.

    Raises `BodyTooLarge` beyond `limit` bytes, `ValueError` for a body that is not so packed,
    `LookupError` for a coding that is not known.
    """
    for name in reversed([part.strip().lower() for part in encoding.split(",")]):
        body = _UNPACK[name](body, limit)
    return body


def encodings() -> tuple[str, ...]:
    """Return the content codings that `decoded` knows."""
    return tuple(sorted(_UNPACK))


def _whole(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise BodyTooLarge(f"the body unpacks to more than {limit} bytes")
    return body


def _gunzip(body: bytes, limit: int) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
            return _whole(file.read(limit + 1), limit)
    except (OSError, EOFError, zlib.error) as problem:
        raise ValueError(f"not gzip: {problem}") from None


def _inflate(body: bytes, limit: int) -> bytes:
    # By the RFC with a zlib header; some clients send it without.
    for window in (zlib.MAX_WBITS, -zlib.MAX_WBITS):
        unpacking = zlib.decompressobj(window)
        try:
            unpacked = unpacking.decompress(body, limit + 1)
        except zlib.error:
            continue
        if (unpacking.eof and not unpacking.unused_data) or len(unpacked) > limit:
            return _whole(unpacked, limit)
    raise ValueError("not deflate")


def _unbrotli(body: bytes, limit: int) -> bytes:
    unpacking = brotli.Decompressor()
    pieces, size = [], 0
    try:
        piece = unpacking.process(body, output_buffer_limit=limit + 1)
        while piece or not unpacking.can_accept_more_data():
            size += len(piece)
            pieces.append(piece)
            if size > limit:
                return _whole(b"".join(pieces), limit)
            piece = unpacking.process(b"", output_buffer_limit=limit + 1)
    except brotli.error as problem:
        raise ValueError(f"not brotli: {problem}") from None
    if not unpacking.is_finished():
        raise ValueError("not brotli: the end is missing")
    return b"".join(pieces)


def _unzstd(body: bytes, limit: int) -> bytes:
    pieces: list[bytes] = []
    unpacking = zstandard.ZstdDecompressor().decompressobj()
    size = at = 0
    try:
        while at < len(body) and size <= limit:
            if unpacking.eof:  # several frames are one body
                unpacking = zstandard.ZstdDecompressor().decompressobj()
            step = body[at : at + _ZSTD_STEP]
            pieces.append(unpacking.decompress(step))
            size += len(pieces[-1])
            at += len(step) - len(unpacking.unused_data)
    except zstandard.ZstdError as problem:
        raise ValueError(f"not zstd: {problem}") from None
    if size <= limit and not unpacking.eof:
        raise ValueError("not zstd: the end is missing")
    return _whole(b"".join(pieces), limit)


def _as_it_is(body: bytes, limit: int) -> bytes:
    return _whole(body, limit)


_UNPACK: dict[str, Callable[[bytes, int], bytes]] = {
    "br": _unbrotli,
    "deflate": _inflate,
    "gzip": _gunzip,
    "identity": _as_it_is,
    "x-gzip": _gunzip,
    "zstd": _unzstd,
}
