"""However much of a provider's error has come, and however packed, no secret of ours is in it."""

import gzip
import json
import zlib
from collections.abc import Callable

import brotli
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.servers.forward_errors import hidden_beginning, without_key
from nemo_gym.servers.provider import Key, Provider
from nemo_gym.transport.address import parse_address
from nemo_gym.wire.dialects import DIALECTS

KEY = "sk-planted/key-1"
PROVIDER = Provider((parse_address("http://h"),), ("chat",), Key.bearer(KEY))
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "identity": lambda data: data,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
}
_bodies = st.builds(
    lambda before, after: f"{before}{KEY}{after}".encode(),
    st.text(max_size=20),
    st.text(max_size=20),
)


@given(_bodies, st.sampled_from(sorted(PACKERS)), st.sampled_from(DIALECTS), st.data())
def test_no_error_holds_the_key_wherever_it_is_cut(
    body: bytes, encoding: str, dialect: object, data: st.DataObject
) -> None:
    packed = PACKERS[encoding](body)
    cut = data.draw(st.integers(0, len(packed)))
    whole = data.draw(st.booleans())
    head = [(b"content-encoding", encoding.encode()), (b"content-length", b"%d" % cut)]

    headers, sent = without_key(401, head, packed[:cut], PROVIDER, dialect, whole=whole)  # type: ignore[arg-type]

    assert dict(headers).get(b"content-length") == b"%d" % len(sent)
    if dict(headers).get(b"content-encoding") in (None, b"identity"):
        assert KEY.encode() not in sent
    else:  # passed on as it came, because nothing of it had been written
        assert cut == 0


@given(_bodies, st.data())
def test_a_text_that_was_cut_never_ends_within_a_secret(body: bytes, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(body)))
    shown = hidden_beginning(body[:cut], PROVIDER)

    assert not any(shown.endswith(KEY.encode()[:n]) for n in range(4, len(KEY) + 1))


@given(_bodies, st.sampled_from(sorted(PACKERS)))
def test_a_whole_error_is_told_but_for_the_key(body: bytes, encoding: str) -> None:
    head = [(b"content-encoding", encoding.encode())]

    _, sent = without_key(401, head, PACKERS[encoding](body), PROVIDER, DIALECTS[0], whole=True)

    assert sent == body.replace(KEY.encode(), b"***")


def test_an_error_that_does_not_unpack_says_so_in_the_dialect_of_its_client() -> None:
    head = [(b"content-encoding", b"gzip"), (b"retry-after", b"1")]
    headers, sent = without_key(429, head, KEY.encode(), PROVIDER, DIALECTS[0], whole=True)

    assert "content-encoding gzip: not gzip" in json.loads(sent)["error"]["message"]
    assert (b"retry-after", b"1") in headers
    assert (b"content-type", b"application/json") in headers


@given(st.sampled_from(sorted(PACKERS)))
def test_an_error_that_escapes_the_key_is_told_but_for_it(encoding: str) -> None:
    body = rb'{"error":{"message":"sk\u002Dplanted\/key-1, sk-planted%2fkey&#45;1"}}'
    head = [(b"content-encoding", encoding.encode())]

    _, sent = without_key(401, head, PACKERS[encoding](body), PROVIDER, DIALECTS[0], whole=True)

    assert json.loads(sent) == {"error": {"message": "***, ***"}}


def test_an_error_that_was_cut_within_an_escape_of_the_key_ends_before_it() -> None:
    assert hidden_beginning(rb"no: sk-planted\u002", PROVIDER) == b"no: "
