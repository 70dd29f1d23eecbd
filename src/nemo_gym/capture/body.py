"""Bytes of one body as they cross the boundary in, what is kept of them out. Pure.

Kept is the body with its content encoding undone, up to a limit. Where the bytes are not what the
encoding says, they are kept as they came.
"""

from typing import NamedTuple

from nemo_gym.wire.encoding import ContentDecoder, UndecodableBody, is_encoded_nothing

__all__ = ["BodyTap", "TappedBody"]


class TappedBody(NamedTuple):
    """One body."""

    data: bytes
    """Content encoding undone; what could be undone where it could not be to the end."""
    truncated_at: int | None = None
    """The limit, in bytes, where the body was longer; None when it is whole."""
    undecodable: bytes | None = None
    """The bytes as they came, where they are not in the encoding that the headers name, or broke
    off before anything could be made of them."""
    broken_off: bool = False
    """Whether it came to an end before its encoding did; `data` is what could be read."""

    @property
    def is_whole(self) -> bool:
        """Whether `data` is all there is to it."""
        return self.truncated_at is None and self.undecodable is None and not self.broken_off


# Pieces of a body that are kept apart; small ones in great number hold much more than their bytes.
_FEW = 32


class BodyTap:
    """Collects one body. `limit`: most bytes kept, after decompression."""

    __slots__ = (
        "_decoder",
        "_encoded",
        "_encodings",
        "_joined",
        "_limit",
        "_pieces",
        "_room",
        "_truncated",
        "_undecodable",
    )

    def __init__(self, encodings: list[str], limit: int) -> None:
        self._joined: bytearray | None = None
        self._pieces: list[bytes] = []
        """What comes behind `_joined`: a body in a few pieces is copied once, when it is whole."""
        self._limit = self._room = limit
        self._truncated = False
        self._decoder: ContentDecoder | None = None
        self._undecodable = False
        self._encodings = encodings
        self._encoded: bytearray | None = bytearray() if encodings else None
        if encodings:
            try:
                self._decoder = ContentDecoder(encodings, limit)
            except UndecodableBody:
                self._undecodable = True

    @property
    def is_plain(self) -> bool:
        """Whether it has no content encoding."""
        return self._encoded is None

    def add(self, chunk: bytes) -> bytes:
        """Take the next bytes; return what they add to the body, its encoding undone."""
        if self._encoded is not None:
            chunk = self._decoded(self._encoded, chunk)
        if not chunk:
            return chunk
        kept = chunk
        if len(chunk) > self._room:
            self._truncated = True
            kept = chunk[: self._room]
        self._room -= len(kept)
        self._pieces.append(kept)
        if len(self._pieces) > _FEW:
            if self._joined is None:
                self._joined = bytearray()
            self._joined += b"".join(self._pieces)
            self._pieces.clear()
        return chunk

    def _decoded(self, encoded: bytearray, chunk: bytes) -> bytes:
        encoded += chunk[: self._limit - len(encoded)]
        if self._decoder is None or self._undecodable:
            return b""
        try:
            chunk = self._decoder.decode(chunk)
        except UndecodableBody:
            self._undecodable = True
            return b""
        self._truncated |= self._decoder.overrun
        return chunk

    def result(self) -> TappedBody:
        """Return the body as far as it came."""
        if self._encoded is None and not self._truncated:
            return TappedBody(self._kept())
        is_nothing = not (self._pieces or self._joined or self._undecodable)
        if self._encoded and is_nothing:
            # It may have broken off before anything came of it.
            self._undecodable = not is_encoded_nothing(self._encodings, bytes(self._encoded))
        judged = self._truncated or self._undecodable or not self._encoded
        return TappedBody(
            self._kept(),
            self._limit if self._truncated else None,
            bytes(self._encoded) if self._undecodable and self._encoded is not None else None,
            not (judged or is_nothing or self._decoder is None or self._decoder.at_end),
        )

    def _kept(self) -> bytes:
        pieces = self._pieces
        if self._joined is None and len(pieces) == 1:
            return pieces[0]
        return b"".join((self._joined or b"", *pieces))
