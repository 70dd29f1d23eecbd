"""Usage of every provider becomes one set of counts; what was not reported stays unknown."""

from typing import Any

import pytest

from nemo_gym.wire.usage import (
    TokenStats,
    cache_signal,
    token_count,
    token_stats,
    usage_detail_token,
    usage_of,
)

_RESPONSES = {
    "input_tokens": 94,
    "input_tokens_details": {"cached_tokens": 30},
    "output_tokens": 28,
    "output_tokens_details": {"reasoning_tokens": 12},
    "total_tokens": 122,
}
_CHAT = {
    "prompt_tokens": 94,
    "prompt_tokens_details": {"cached_tokens": 30, "audio_tokens": 0},
    "completion_tokens": 28,
    "completion_tokens_details": {"reasoning_tokens": 12},
    "total_tokens": 122,
}
_MESSAGES = {
    "input_tokens": 5,
    "cache_read_input_tokens": 100,
    "cache_creation_input_tokens": 20,
    "output_tokens": 50,
}


@pytest.mark.parametrize(
    ("usage", "dialect", "stats"),
    [
        (_RESPONSES, "responses", TokenStats(94, 28, 12, 122, None)),
        (_CHAT, "chat", TokenStats(94, 28, 12, 122, None)),
        (_MESSAGES, "messages", TokenStats(125, 50, None, 175, 20)),
        ({"input_tokens": 5, "output_tokens": 1}, "messages", TokenStats(5, 1, None, 6, None)),
    ],
    ids=["responses", "chat", "messages", "messages-without-cache"],
)
def test_the_rule_of_the_dialect_and_that_of_the_fields_agree(
    usage: dict[str, Any], dialect: str, stats: TokenStats
) -> None:
    assert token_stats(usage, dialect) == stats
    assert token_stats(usage) == stats


@pytest.mark.parametrize(
    ("usage", "stats"),
    [
        ({"prompt_tokens": 0, "completion_tokens": 0}, TokenStats(0, 0, None, 0, None)),
        ({"prompt_tokens": True, "completion_tokens": 3}, TokenStats(None, 3, None, None, None)),
        ({"prompt_tokens": -1, "total_tokens": 2.0}, TokenStats(None, None, None, None, None)),
        ({"prompt_tokens": "7", "input_tokens": 8}, TokenStats(8, None, None, None, None)),
        ({"total_tokens": 9}, TokenStats(None, None, None, 9, None)),
        ({"cache_read_input_tokens": 9}, TokenStats(None, None, None, None, None)),
        ({"completion_tokens": 3, "reasoning_tokens": 2}, TokenStats(None, 3, 2, None, None)),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cache_write_tokens": 4}},
            TokenStats(9, None, None, None, 4),
        ),
        (
            {"prompt_tokens": 9, "input_tokens": 9, "cache_read_input_tokens": 4},
            TokenStats(9, None, None, None, None),
        ),
        (None, TokenStats(None, None, None, None, None)),
        ([1], TokenStats(None, None, None, None, None)),
    ],
    ids=[
        "zero-is-known", "bool-is-not-a-count", "negative-and-float-are-not", "text-is-not",
        "total-only", "cache-without-input", "reasoning-outside-details", "cache-writes-in-details",
        "a-gateway-that-sends-both-spellings-counts-the-cache-once", "none", "list",
    ],
)  # fmt: skip
def test_counts_are_read_and_the_rest_is_unknown(usage: object, stats: TokenStats) -> None:
    assert token_stats(usage) == stats


def test_a_dialect_whose_usage_is_spelled_otherwise_is_read_too() -> None:
    spelled = {"input_tokens": 5, "cache_read_input_tokens": 100, "output_tokens": 1}

    assert token_stats(spelled, "chat") == TokenStats(5, 1, None, 6, None)
    assert token_stats({"prompt_tokens": 5}, "messages").tokens_in == 5


@pytest.mark.parametrize(
    ("usage", "signal"),
    [
        (_RESPONSES, (True, 30)),
        (_CHAT, (True, 30)),
        (_MESSAGES, (True, 100)),
        ({"prompt_tokens_details": {"cached_tokens": 0}}, (False, 0)),
        ({"prompt_cache_hit_tokens": 7}, (True, 7)),
        ({"cached_tokens": 7}, (True, 7)),
        ({"cache_creation_input_tokens": 7}, (None, None)),
        ({"prompt_tokens_details": {"cached_tokens": True}}, (None, None)),
        ({"prompt_tokens_details": None}, (None, None)),
        ({}, (None, None)),
        ("x", (None, None)),
    ],
)
def test_a_cache_hit_is_told_where_the_provider_tells_it(usage: object, signal: object) -> None:
    assert cache_signal(usage) == signal


def test_the_first_valid_count_among_equivalent_details_is_taken() -> None:
    usage = {"a": {"x": None, "y": -1}, "b": None, "c": {"x": True, "y": 0}, "d": {"x": 5}}

    assert usage_detail_token(usage, ("a", "b", "c", "d"), ("x", "y")) == 0
    assert usage_detail_token(usage, ("a", "b", "missing"), ("x", "y")) is None


@pytest.mark.parametrize(
    ("value", "count"), [(0, 0), (7, 7), (-1, None), (True, None), (1.0, None), (None, None)]
)
def test_a_token_count_is_a_whole_number_from_zero_up(value: object, count: int | None) -> None:
    assert token_count(value) == count


def test_usage_that_a_server_puts_in_its_own_field_is_found() -> None:
    assert usage_of({"usage": {"a": 1}, "x_groq": {"usage": {"b": 2}}}) == {"a": 1}
    assert usage_of({"usage": None, "x_groq": {"usage": {"b": 2}}}) == {"b": 2}
    assert usage_of({"x_groq": None}) is None
