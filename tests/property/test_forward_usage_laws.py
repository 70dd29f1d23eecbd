"""Laws of reading usage off a passing answer: bytes may be cut anywhere, and any bytes may pass."""

import gzip
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.servers.forward_usage import TokenCounts, UsageReader, quick_counts
from nemo_gym.wire.dialects import DialectName
from nemo_gym.wire.usage import cache_signal, token_stats
from support.provider_bodies import Answer, events_of, json_of

ANSWER = Answer(text='said "usage": 3', tokens_in=120, tokens_out=7, cached=20)
DIALECTS: tuple[DialectName, ...] = ("responses", "chat", "messages")


def pieces_of(body: bytes, cuts: list[int]) -> list[bytes]:
    """Return the body cut at these places, in order."""
    places = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    return [body[start:end] for start, end in pairwise(places)]


def told(reader: UsageReader, pieces: list[bytes]) -> TokenCounts | None:
    for piece in pieces:
        reader.feed(piece)
    return reader.counts()


@given(st.sampled_from(DIALECTS), st.booleans(), st.lists(st.integers(0, 5000), max_size=8))
def test_counts_are_those_of_the_provider_wherever_its_bytes_are_cut(
    dialect: DialectName, stream: bool, cuts: list[int]
) -> None:
    body = b"".join(events_of(dialect, ANSWER)) if stream else json_of(dialect, ANSWER)

    counts = told(UsageReader(dialect, stream=stream), pieces_of(body, cuts))

    assert counts is not None
    prompt = 140 if dialect == "messages" else 120  # Messages counts cached tokens apart
    assert (counts.tokens_in, counts.tokens_out, counts.cache_read) == (prompt, 7, 20)


@given(st.sampled_from(DIALECTS), st.booleans(), st.lists(st.binary(max_size=40), max_size=5))
def test_bytes_that_are_no_answer_say_nothing(
    dialect: DialectName, stream: bool, pieces: list[bytes]
) -> None:
    assert told(UsageReader(dialect, stream=stream), pieces) is None


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_compressed_body_is_unpacked(dialect: DialectName) -> None:
    body = gzip.compress(json_of(dialect, ANSWER))

    counts = told(UsageReader(dialect, stream=False, encoding="gzip"), [body])

    assert counts is not None
    assert counts.tokens_out == 7


numbers = st.integers(-1, 99) | st.integers((1 << 63) - 2, 1 << 64) | st.just(10**400)
counts_of_tokens = st.none() | numbers | st.booleans() | st.just(1.5)
details = st.dictionaries(
    st.sampled_from(
        [
            "cached_tokens",
            "cache_read_tokens",
            "cache_creation_tokens",
            "cache_write_tokens",
            "cache_creation_input_tokens",
            "reasoning_tokens",
            "audio_tokens",
        ]
    ),
    counts_of_tokens,
)
usages = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": counts_of_tokens,
        "completion_tokens": counts_of_tokens,
        "input_tokens": counts_of_tokens,
        "output_tokens": counts_of_tokens,
        "cache_read_input_tokens": counts_of_tokens,
        "cache_creation_input_tokens": counts_of_tokens,
        "prompt_cache_hit_tokens": counts_of_tokens,
        "cached_tokens": counts_of_tokens,
        "reasoning_tokens": counts_of_tokens,
        "input_tokens_details": details | counts_of_tokens,
        "prompt_tokens_details": details,
        "output_tokens_details": details | st.just("none"),
        "completion_tokens_details": details,
    },
)


# What stands around a body's own usage: the word in texts, in keys and further in.
words = st.sampled_from(["usage", 'the "usage', '"usage": {"prompt_tokens": 1}', "\\", "x"])
around = st.recursive(
    words | usages | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=6,
)
members = st.lists(st.tuples(words.filter(lambda word: word != "usage"), around), max_size=3)


@given(st.sampled_from(DIALECTS), usages, members, members, st.sampled_from([None, 1]))
def test_the_quick_way_finds_what_the_thorough_one_finds(
    dialect: DialectName,
    usage: dict[str, object],
    before: list[tuple[str, object]],
    after: list[tuple[str, object]],
    indent: int | None,
) -> None:
    body = json.dumps({**dict(before), "usage": usage, **dict(after)}, indent=indent).encode()
    counts, sizes = (quick_counts(body, dialect, parts=parts) for parts in (True, False))

    expected = token_stats(usage, dialect)
    assert (counts or (None,) * 5) == (
        expected.tokens_in,
        expected.tokens_out,
        cache_signal(usage)[1],
        expected.cache_creation_tokens,
        expected.tokens_reasoning,
    )
    assert (sizes or (None, None))[:2] == (expected.tokens_in, expected.tokens_out)


@given(st.sampled_from(DIALECTS), members)
def test_the_quick_way_takes_no_other_usage_for_the_bodys_own(
    dialect: DialectName, found: list[tuple[str, object]]
) -> None:
    body = json.dumps(dict(found)).encode()

    assert quick_counts(body, dialect) == told(UsageReader(dialect, stream=False), [body])
