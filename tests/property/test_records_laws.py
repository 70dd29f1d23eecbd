"""Laws of records and their totals."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.records.model_call import ModelCallRecord, build
from nemo_gym.records.totals import aggregate
from nemo_gym.wire.usage import token_stats

_COUNT = st.none() | st.integers(0, 10**9)
_LATENCY = st.none() | st.floats(0, 1e9, allow_nan=False)
_TOKENS = ("tokens_in", "tokens_out", "tokens_reasoning", "tokens_total", "cached_tokens")
_KEYS = [*_TOKENS, "latency_total_ms", "num_calls"]


@st.composite
def _records(draw: st.DrawFn) -> list[ModelCallRecord]:
    return [
        ModelCallRecord.model_validate(
            {name: draw(_COUNT) for name in _TOKENS}
            | {"call_index": index, "latency_total_ms": draw(_LATENCY)}
            | {"client_session_id": None, "client_assistant_message_id": None}
        )
        for index in range(draw(st.integers(0, 6)))
    ]


@given(_records(), st.randoms(use_true_random=False))
def test_totals_do_not_depend_on_the_order(calls: list[ModelCallRecord], random: Any) -> None:
    shuffled = list(calls)
    random.shuffle(shuffled)

    assert aggregate(shuffled) == aggregate(calls)
    assert list(aggregate(calls)) == _KEYS


@given(_records())
def test_a_total_is_unknown_exactly_when_no_call_reported_it(calls: list[ModelCallRecord]) -> None:
    totals = aggregate(calls)

    assert totals["num_calls"] == len(calls)
    for name in (*_TOKENS, "latency_total_ms"):
        known = [v for v in (getattr(call, name) for call in calls) if v is not None]
        assert (totals[name] is None) == (not known)
    assert totals["tokens_in"] in {None, sum(c.tokens_in or 0 for c in calls)}


_ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, 0, 3, -1, True, 2.0, "5", [], {}, {"cached_tokens": 1}]
)
_NAMES = st.sampled_from(
    [
        "input_tokens", "prompt_tokens", "output_tokens", "completion_tokens", "total_tokens",
        "reasoning_tokens", "cache_read_input_tokens", "cache_creation_input_tokens",
        "input_tokens_details", "prompt_tokens_details", "output_tokens_details",
    ]
)  # fmt: skip


@given(st.dictionaries(_NAMES, _ODD), st.sampled_from([None, "chat", "messages", "responses"]))
def test_counts_are_whole_numbers_from_zero_up_or_unknown(usage: Any, dialect: str | None) -> None:
    for count in token_stats(usage, dialect):
        assert count is None or (type(count) is int and count >= 0)


_WORDS = st.sampled_from(
    [
        "id", "type", "usage", "choices", "message", "output", "content", "name", "status",
        "notes", "model", "input", "arguments", "function", "tool_calls", "summary",
    ]
)  # fmt: skip
_LINE_KEYS = st.sampled_from(
    [
        "model_call_id", "dialect", "model_ref", "started_at", "latency_ms", "status_code",
        "request", "response", "request_raw", "response_source", "upstream_attempted", "notes",
    ]
)  # fmt: skip
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(_LINE_KEYS, _JSON))
def test_no_line_of_any_shape_stops_a_record(line: Any) -> None:
    record = build(line, 0)

    assert ModelCallRecord.model_validate(record.model_dump()) == record
