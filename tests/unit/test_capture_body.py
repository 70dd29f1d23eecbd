"""Of a body is kept what it says, up to a limit, or the bytes that say nothing."""

import gzip

import pytest

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
