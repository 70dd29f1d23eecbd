"""Examples of the `traceparent` header from the W3C recommendation, right and wrong."""

import pytest

from nemo_gym.telemetry.trace_context import TraceContext, joined_state, parse_traceparent

TRACE = b"4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = b"00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("header", "sampled"),
    [
        (b"00-" + TRACE + b"-" + SPAN + b"-01", True),
        (b"00-" + TRACE + b"-" + SPAN + b"-00", False),
        (b"00-" + TRACE + b"-" + SPAN + b"-03", True),
        (b" 00-" + TRACE + b"-" + SPAN + b"-01 ", True),
        (b"cc-" + TRACE + b"-" + SPAN + b"-01-what-the-future-holds", True),
    ],
    ids=["sampled", "not-sampled", "more-flags", "blanks-around", "later-version"],
)
def test_a_valid_header_is_read(header: bytes, sampled: bool) -> None:
    expected = TraceContext(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7, sampled)

    assert parse_traceparent(header) == expected


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"ff-" + TRACE + b"-" + SPAN + b"-01",
        b"00-" + b"0" * 32 + b"-" + SPAN + b"-01",
        b"00-" + TRACE + b"-" + b"0" * 16 + b"-01",
        b"00-" + TRACE.upper() + b"-" + SPAN + b"-01",
        b"00-" + TRACE + b"-" + SPAN + b"-01-extra",
        b"00-" + TRACE + b"-" + SPAN,
    ],
    ids=["empty", "version-ff", "zero-trace", "zero-span", "upper-case", "version-00-more", "cut"],
)
def test_an_invalid_header_is_no_context(header: bytes) -> None:
    assert parse_traceparent(header) is None


@pytest.mark.parametrize(
    ("headers", "state"),
    [
        ([b"congo=t61rcWkgMzE"], b"congo=t61rcWkgMzE"),
        ([b"foo=1", b"bar=2"], b"foo=1,bar=2"),
        ([b"rojo=1, congo=2", b"", b" baz=3 ,"], b"rojo=1,congo=2,baz=3"),
        ([b"foo=1 ,\tbar=2"], b"foo=1 ,\tbar=2"),
        ([b"fw529a3039@dt=a b!"], b"fw529a3039@dt=a b!"),
        ([b",".join(b"k%d=v" % n for n in range(32))], b",".join(b"k%d=v" % n for n in range(32))),
        ([b"k%d=v" % n for n in range(33)], b""),
        ([b"foo=1", b"bar"], b""),
        ([b"foo=1", b"BAR=2"], b""),
        ([b"foo=1=2"], b""),
        ([b"foo=" + b"v" * 257], b""),
        ([b"foo=1\r\nx: y"], b""),
    ],
    ids=["one", "in-order", "blanks-and-empty", "one-as-it-came", "tenant", "32-members",
         "33-members", "no-value", "upper-case", "equals", "too-long", "line-break"],
)  # fmt: skip
def test_the_state_of_several_headers_is_one_list_in_order(
    headers: list[bytes], state: bytes
) -> None:
    assert joined_state(headers) == state
