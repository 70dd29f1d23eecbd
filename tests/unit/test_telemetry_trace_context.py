"""Examples of the `traceparent` header from the W3C recommendation, right and wrong."""

import pytest

from nemo_gym.telemetry.trace_context import TraceContext, parse_traceparent

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
