"""W3C trace context: what is written is read, and anything else is nothing."""

from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.telemetry.trace_context import (
    TraceContext,
    format_traceparent,
    parse_traceparent,
    sampled_by,
)

trace_ids = st.integers(1, 2**128 - 1)
contexts = st.builds(TraceContext, trace_ids, st.integers(1, 2**64 - 1), st.booleans())


@given(contexts)
def test_what_is_written_is_read(context: TraceContext) -> None:
    assert parse_traceparent(format_traceparent(context)) == context


@given(st.binary(max_size=80))
def test_bytes_that_are_no_context_are_none_and_never_an_error(header: bytes) -> None:
    found = parse_traceparent(header)

    assert found is None or format_traceparent(found)[3:52] in header


@given(trace_ids, st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_samples_whatever_a_smaller_one_did(
    trace_id: int, one: float, other: float
) -> None:
    small, large = sorted((one, other))

    assert sampled_by(large, trace_id) or not sampled_by(small, trace_id)
    assert sampled_by(1.0, trace_id)
    assert not sampled_by(0.0, trace_id)
