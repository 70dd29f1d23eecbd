"""Encoded bodies are undone as they come, never beyond their limit."""

import gzip
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard

from nemo_gym.wire.encoding import ContentDecoder, UndecodableBody, parse_encodings

_BODY = bytes(range(256)) * 20 + b"a" * 200_000


def _bare_deflate(data: bytes) -> bytes:
    return zlib.compress(data)[2:-4]


_ENCODERS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("x-gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", _bare_deflate),
    ("br", brotli.compress),
    ("zstd", zstandard.compress),
]
_EVERY = pytest.mark.parametrize(
    ("name", "encode"), _ENCODERS, ids=["gzip", "x-gzip", "zlib", "deflate", "br", "zstd"]
)


def _decode(names: list[str], body: bytes, size: int, limit: int = 10**9) -> bytes:
    decoder = ContentDecoder(names, limit)
    return b"".join(decoder.decode(body[i : i + size]) for i in range(0, len(body), size))


@_EVERY
@pytest.mark.parametrize("size", [1, 1000, 10**9])
def test_a_body_comes_back_however_it_is_cut(
    name: str, encode: Callable[[bytes], bytes], size: int
) -> None:
    assert _decode([name], encode(_BODY), size) == _BODY
    assert _decode([name], encode(b""), size) == b""


@_EVERY
def test_a_small_piece_may_make_a_large_one(name: str, encode: Callable[[bytes], bytes]) -> None:
    assert _decode([name], encode(b"\0" * 5_000_000), 10**9) == b"\0" * 5_000_000


@_EVERY
def test_a_bomb_stops_at_the_limit(name: str, encode: Callable[[bytes], bytes]) -> None:
    bomb = encode(b"\0" * 50_000_000)
    decoder = ContentDecoder([name], 10_000)

    made = decoder.decode(bomb)

    assert (len(made), decoder.overrun) == (10_000, True)
    assert decoder.decode(bomb) == b""


@_EVERY
@pytest.mark.parametrize("limit", [1 << 20, (1 << 20) + 1, 3_000_000])
def test_a_long_beginning_is_kept_up_to_the_limit(
    name: str, encode: Callable[[bytes], bytes], limit: int
) -> None:
    text = b"".join(b"%07d\n" % number for number in range(600_000))

    assert _decode([name], encode(text), 10**9, limit) == text[:limit]


@_EVERY
def test_a_body_of_just_the_limit_is_whole(name: str, encode: Callable[[bytes], bytes]) -> None:
    decoder = ContentDecoder([name], 6)

    assert decoder.decode(encode(b"abcdef")) == b"abcdef"
    assert not decoder.overrun


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_bytes_that_are_not_what_they_say_are_an_error(name: str) -> None:
    with pytest.raises(UndecodableBody):
        ContentDecoder([name], 1000).decode(b"hello, this is no such thing")


@pytest.mark.parametrize(
    ("name", "encode"), [("gzip", gzip.compress), ("zstd", zstandard.compress)]
)
def test_several_members_after_one_another_are_one_body(
    name: str, encode: Callable[[bytes], bytes]
) -> None:
    body = encode(b"abc") + encode(b"def")

    assert _decode([name], body, 1) == _decode([name], body, 999) == b"abcdef"


def test_padding_behind_a_gzip_member_is_nothing() -> None:
    padded = gzip.compress(b"abc") + b"\0\0\0"

    assert _decode(["gzip"], padded, 1) == _decode(["gzip"], padded, 999) == b"abc"


def test_encodings_are_undone_last_one_first() -> None:
    names = parse_encodings([b"gzip, BR", b" identity ", b""])

    assert names == ["gzip", "br"]
    assert _decode(names, brotli.compress(gzip.compress(b"abc")), 3) == b"abc"


def test_an_unknown_encoding_is_an_error() -> None:
    with pytest.raises(UndecodableBody, match="snappy"):
        ContentDecoder(["snappy"], 10)
