"""Bytes of a stream through the reader, in pieces of any size."""

from collections.abc import Iterable

from nemo_gym.wire.dialects import Dialect
from nemo_gym.wire.dialects.base import Assembled
from nemo_gym.wire.stream import StreamReader


def assemble(dialect: Dialect, pieces: Iterable[bytes]) -> Assembled:
    """What a stream amounts to that comes in `pieces`."""
    reader = StreamReader(dialect)
    for piece in pieces:
        if not reader.waits(piece):
            reader.feed(piece, 0.0)
    return reader.finish()


def bytewise(body: bytes) -> list[bytes]:
    """The body, one byte at a time."""
    return [body[i : i + 1] for i in range(len(body))]
