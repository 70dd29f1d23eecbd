"""Of a body is kept what it says, up to a limit, or the bytes that say nothing."""

import gzip
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.capture.body import BodyTap, TappedBody


def _tapped(encodings: list[str], pieces: list[bytes], limit: int = 1000) -> TappedBody:
    tap = BodyTap(encodings, limit)
    for piece in pieces:
        tap.add(piece)
    return tap.result()


def test_a_plain_body_is_kept_as_it_came() -> None:
    assert _tapped([], [b"ab", b"", b"cd"]) == TappedBody(b"abcd")


def test_a_plain_body_is_cut_at_the_limit() -> None:
    assert _tapped([], [b"ab", b"cd"], 4) == TappedBody(b"abcd")
    assert _tapped([], [b"ab", b"cde", b"f"], 4) == TappedBody(b"abcd", truncated_at=4)


def test_a_compressed_body_is_undone() -> None:
    body = gzip.compress(b"hello")

    assert _tapped(["gzip"], [body[:9], body[9:]]) == TappedBody(b"hello")


def test_a_compressed_body_is_undone_however_many_pieces_it_comes_in() -> None:
    for number in range(1, 100):
        packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
        pieces = [packer.compress(b"a") + packer.flush(zlib.Z_SYNC_FLUSH) for _ in range(number)]

        assert _tapped(["gzip"], [*pieces, packer.flush()]) == TappedBody(b"a" * number)


def test_a_bomb_is_cut_at_the_limit() -> None:
    tapped = _tapped(["gzip"], [gzip.compress(b"\0" * 10**7)], 100)

    assert tapped == TappedBody(b"\0" * 100, truncated_at=100)


def test_a_corrupt_body_is_kept_as_it_came_with_what_could_be_read() -> None:
    body = gzip.compress(bytes(range(256)))
    corrupt = body[:-8] + b"\0" * 8

    tapped = _tapped(["gzip"], [corrupt[:-9], corrupt[-9:], b"more"])

    assert tapped.undecodable == corrupt + b"more"
    assert bytes(range(256)).startswith(tapped.data)
    assert tapped.data


@pytest.mark.parametrize("names", [["snappy"], ["gzip", "snappy"]])
def test_an_encoding_that_nobody_knows_leaves_the_bytes(names: list[str]) -> None:
    assert _tapped(names, [b"ab", b"cd"]) == TappedBody(b"", undecodable=b"abcd")


def test_bytes_that_cannot_be_read_are_cut_at_the_limit_too() -> None:
    assert _tapped(["snappy"], [b"abc", b"def", b"g"], 4).undecodable == b"abcd"


def _bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, list[Callable[[bytes], bytes]]] = {
    "gzip": [gzip.compress],
    "deflate": [zlib.compress, _bare_deflate],
    "br": [brotli.compress],
    "zstd": [zstandard.ZstdCompressor().compress],
}
PACKED = [(name, pack) for name, packers in PACKERS.items() for pack in packers]


@given(st.sampled_from(PACKED), st.binary(max_size=200), st.data())
def test_of_a_body_that_breaks_off_is_kept_what_could_be_read_or_the_bytes(
    packed: tuple[str, Callable[[bytes], bytes]], content: bytes, data: st.DataObject
) -> None:
    name, pack = packed
    whole = pack(content)
    came = whole[: data.draw(st.integers(0, len(whole) - 1))]

    kept = _tapped([name], [came])

    assert content.startswith(kept.data)
    if came and content and not kept.data:
        assert kept.undecodable == came
    if kept.data or not came:
        assert kept.undecodable is None
    assert kept.broken_off is (kept.data != b"")


@given(st.sampled_from(PACKED), st.lists(st.binary(min_size=1, max_size=50)), st.data())
def test_a_whole_body_is_whole_in_whatever_pieces_it_comes(
    packed: tuple[str, Callable[[bytes], bytes]], contents: list[bytes], data: st.DataObject
) -> None:
    name, pack = packed
    # Several members of these are one body.
    members = contents if name in ("gzip", "zstd") else [b"".join(contents)]
    whole = b"".join(map(pack, members))
    cut = data.draw(st.integers(0, len(whole)))

    assert _tapped([name], [whole[:cut], whole[cut:]]) == TappedBody(b"".join(contents))


def test_of_a_body_that_breaks_off_at_the_limit_only_the_limit_is_told() -> None:
    came = gzip.compress(b"\0" * 10**7)[:-9]

    assert _tapped(["gzip"], [came], 100) == TappedBody(b"\0" * 100, truncated_at=100)


def test_a_body_of_several_encodings_is_whole_where_each_is() -> None:
    whole = gzip.compress(brotli.compress(b"hello"))
    cut_inside = gzip.compress(brotli.compress(b"hello")[:-1])

    assert _tapped(["br", "gzip"], [whole]) == TappedBody(b"hello")
    assert _tapped(["br", "gzip"], [whole[:-1]]) == TappedBody(b"hello", broken_off=True)
    assert _tapped(["br", "gzip"], [cut_inside]).broken_off


@pytest.mark.parametrize(("name", "pack"), PACKED)
def test_a_whole_body_that_is_empty_is_no_broken_one(
    name: str, pack: Callable[[bytes], bytes]
) -> None:
    assert _tapped([name], [pack(b"")]) == TappedBody(b"")


def test_of_several_encodings_what_broke_off_is_kept_as_it_came() -> None:
    came = gzip.compress(gzip.compress(b"hello"))[:15]

    assert _tapped(["gzip", "gzip"], [came]) == TappedBody(b"", undecodable=came)


def test_a_member_that_broke_off_behind_an_empty_one_is_kept() -> None:
    for name, pack in (("gzip", gzip.compress), ("zstd", zstandard.ZstdCompressor().compress)):
        came = pack(b"") + pack(b"hello")[:9]

        assert _tapped([name], [came]) == TappedBody(b"", undecodable=came)
