"""Content-encoded bytes in, plain bytes out, as they come. Never more than asked for.

A few kilobytes can hold gigabytes, so a decoder stops at its limit: what was made up to there is
kept, the rest is not looked at. Bytes that are not what their encoding says raise
`UndecodableBody`; what was made before stands.
"""

import zlib
from collections.abc import Callable, Iterable
from typing import Protocol, cast

import brotli  # pyright: ignore[reportMissingTypeStubs]
import zstandard

__all__ = ["ContentDecoder", "UndecodableBody", "is_encoded_nothing", "parse_encodings"]

# One slice of zstd input makes at most some 32 MB of output.
_SLICE = 1024
_STEP = 1 << 20


class UndecodableBody(ValueError):
    """The body is not in the encoding that its headers name."""


class _Stage(Protocol):
    def decode(self, chunk: bytes, room: int) -> bytes:
        """Return what `chunk` adds; about `room` bytes at most."""
        ...

    @property
    def at_end(self) -> bool:
        """Whether what came so far may be all: it ends where the encoding does."""
        ...


class _Zlib:
    """gzip (also several members after one another), and deflate with or without its frame."""

    def __init__(self, wbits: int | None) -> None:
        """Take the window bits of zlib; None finds out whether a frame is there."""
        self._wbits = wbits
        self._head: bytes = b""
        self._inflate = zlib.decompressobj(wbits or zlib.MAX_WBITS)
        self.at_end = False

    def decode(self, chunk: bytes, room: int) -> bytes:
        if self._wbits is None:
            chunk = self._head + chunk
            if len(chunk) < 2:
                self._head = chunk
                return b""
            self._wbits = zlib.MAX_WBITS if _is_zlib_frame(chunk) else -zlib.MAX_WBITS
            self._inflate = zlib.decompressobj(self._wbits)
        out: list[bytes] = []
        while room > 0:
            if self.at_end:
                # What lies behind a whole member is the next one; padding of zeros is nothing.
                chunk = chunk.lstrip(b"\0")
            if not chunk:
                break
            if self.at_end:
                self._inflate = zlib.decompressobj(self._wbits)
            out.append(self._inflate.decompress(chunk, min(room, _STEP)))
            room -= len(out[-1])
            chunk = self._inflate.unconsumed_tail or self._inflate.unused_data
            self.at_end = self._inflate.eof
        return b"".join(out)


def _is_zlib_frame(data: bytes) -> bool:
    """Say whether `data` opens as RFC 1950 has it; some servers send bare deflate (RFC 1951)."""
    return data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0


class _BrotliDecompressor(Protocol):
    """The part of `brotli.Decompressor` that is used; the library ships no types."""

    def process(self, data: bytes, /, *, output_buffer_limit: int) -> bytes: ...

    def is_finished(self) -> bool: ...


_new_brotli = cast("Callable[[], _BrotliDecompressor]", vars(brotli)["Decompressor"])
_BrotliError = cast("type[Exception]", vars(brotli)["error"])


class _Brotli:
    def __init__(self) -> None:
        self._inner = _new_brotli()

    @property
    def at_end(self) -> bool:
        return self._inner.is_finished()

    def decode(self, chunk: bytes, room: int) -> bytes:
        out: list[bytes] = []
        piece = self._inner.process(chunk, output_buffer_limit=min(room, _STEP))
        while piece:
            out.append(piece)
            room -= len(piece)
            # More may wait inside even when it would take more input.
            more = room > 0 and not self._inner.is_finished()
            piece = self._inner.process(b"", output_buffer_limit=min(room, _STEP)) if more else b""
        return b"".join(out)


class _Zstd:
    def __init__(self) -> None:
        self._outer = zstandard.ZstdDecompressor()
        self._inner = self._outer.decompressobj()

    @property
    def at_end(self) -> bool:
        return self._inner.eof

    def decode(self, chunk: bytes, room: int) -> bytes:
        out: list[bytes] = []
        for start in range(0, len(chunk), _SLICE):
            piece = chunk[start : start + _SLICE]
            while piece and room > 0:
                if self._inner.eof:  # what lies behind a whole frame is the next one
                    self._inner = self._outer.decompressobj()
                out.append(self._inner.decompress(piece))
                room -= len(out[-1])
                piece = self._inner.unused_data
        return b"".join(out)


_STAGES: dict[str, Callable[[], _Stage]] = {
    "gzip": lambda: _Zlib(zlib.MAX_WBITS | 16),
    "x-gzip": lambda: _Zlib(zlib.MAX_WBITS | 16),
    "deflate": lambda: _Zlib(None),
    "br": _Brotli,
    "zstd": _Zstd,
}


def parse_encodings(values: Iterable[bytes]) -> list[str]:
    """Return the encodings of `content-encoding` header values, in order of application."""
    names = b",".join(values).decode("latin-1").lower().split(",")
    return [name for name in (n.strip() for n in names) if name not in {"", "identity"}]


class ContentDecoder:
    """Undoes the encodings of one body; `limit` bounds what it makes in all, in bytes."""

    def __init__(self, encodings: list[str], limit: int) -> None:
        """Raise `UndecodableBody` for an encoding that nobody here knows."""
        unknown = [name for name in encodings if name not in _STAGES]
        if unknown:
            raise UndecodableBody(f"unknown content-encoding {', '.join(unknown)}")
        self._stages = [_STAGES[name]() for name in reversed(encodings)]
        self._room = limit

    @property
    def overrun(self) -> bool:
        """Whether there was more than the limit lets through."""
        return self._room < 0

    @property
    def at_end(self) -> bool:
        """Whether what came ends where its encodings do; False once it was overrun."""
        return not self.overrun and all(stage.at_end for stage in self._stages)

    def decode(self, chunk: bytes) -> bytes:
        """Return what `chunk` adds, nothing once the limit is passed; raises `UndecodableBody`."""
        if self.overrun:
            return b""
        try:
            for stage in self._stages:
                chunk = stage.decode(chunk, self._room + 1) if chunk else b""
        except (zlib.error, _BrotliError, zstandard.ZstdError) as error:
            raise UndecodableBody(str(error)) from error
        made = chunk if len(chunk) <= self._room else _beginning(chunk, self._room)
        self._room -= len(chunk)
        return made


def _beginning(data: bytes, length: int) -> bytes:
    # One slice of 256 MB would stop every other thread for a fifth of a second.
    ends = (min(start + _STEP, length) for start in range(0, length, _STEP))
    return b"".join([data[end - 1 - (end - 1) % _STEP : end] for end in ends])


def is_encoded_nothing(encodings: list[str], data: bytes) -> bool:
    """Say whether `data`, of which nothing could be made, is a whole body that is empty.

    Otherwise it broke off before anything came of it. Several encodings are never an empty body:
    nobody sends one.
    """
    if len(encodings) != 1:
        return not data
    ends = _ENDS.get(encodings[0])
    return not data or (ends is not None and ends(data))


def _zlib_ends(wbits: int, data: bytes) -> bool:
    inflate = zlib.decompressobj(wbits)
    try:
        made = inflate.decompress(data, 1)
        return not made and inflate.eof and not inflate.unused_data.strip(b"\0")
    except zlib.error:
        return False


def _brotli_ends(data: bytes) -> bool:
    inner = _new_brotli()
    inner.process(data, output_buffer_limit=1)
    return inner.is_finished()


def _zstd_ends(data: bytes) -> bool:
    inner = zstandard.ZstdDecompressor().decompressobj()
    inner.decompress(data)
    return inner.eof and not inner.unused_data


_ENDS: dict[str, Callable[[bytes], bool]] = {
    "gzip": lambda data: _zlib_ends(zlib.MAX_WBITS | 16, data),
    "x-gzip": lambda data: _zlib_ends(zlib.MAX_WBITS | 16, data),
    "deflate": lambda data: any(_zlib_ends(sign * zlib.MAX_WBITS, data) for sign in (1, -1)),
    "br": _brotli_ends,
    "zstd": _zstd_ends,
}
"""Whether bytes that are valid so far, and hold nothing yet, are a whole body, by encoding."""
