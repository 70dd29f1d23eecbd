"""Usage as a provider reported it in, token counts out. Unknown is None, never 0. Pure.

The three dialects count prompts differently. OpenAI's (`prompt_tokens`, and `input_tokens` of
Responses) include what came from a cache; Anthropic's `input_tokens` is the rest besides cache
reads and cache writes, so these are added. Which rule applies is told by the dialect where it is
known, else by the fields; where both apply they agree.
"""

from collections.abc import Mapping
from typing import NamedTuple

from nemo_gym.wire.json import is_array, is_count, is_object

__all__ = [
    "TokenStats",
    "cache_signal",
    "token_count",
    "token_stats",
    "usage_detail_token",
    "usage_of",
]

_INPUT_DETAILS = ("input_tokens_details", "prompt_tokens_details")
_OUTPUT_DETAILS = ("output_tokens_details", "completion_tokens_details")
_OPENAI_ONLY = ("prompt_tokens", *_INPUT_DETAILS)
_CACHE_WRITES = ("cache_creation_tokens", "cache_write_tokens", "cache_creation_input_tokens")


class TokenStats(NamedTuple):
    """Token counts of one call; None: not reported."""

    tokens_in: int | None
    """Size of the prompt, cached parts included."""
    tokens_out: int | None
    tokens_reasoning: int | None
    """Part of `tokens_out`."""
    tokens_total: int | None
    """As reported, else `tokens_in` + `tokens_out` where both are known."""
    cache_creation_tokens: int | None
    """Part of `tokens_in` that was written to a cache."""


def token_count(value: object) -> int | None:
    """Return `value` when it counts tokens: a whole number from 0 up, not a bool."""
    return value if is_count(value) else None


def usage_detail_token(
    usage: Mapping[str, object], detail_groups: tuple[str, ...], field_names: tuple[str, ...]
) -> int | None:
    """Return the first count among `field_names` in the objects `detail_groups` of `usage`."""
    for group in detail_groups:
        details = usage.get(group)
        if details is not None and is_object(details):
            count = _first(details, field_names)
            if count is not None:
                return count
    return None


def token_stats(usage: object, dialect: str | None = None) -> TokenStats:
    """Return the counts in `usage`. `dialect`: the one it came in; None: judge by the fields."""
    if not is_object(usage):
        return TokenStats(None, None, None, None, None)
    names = ("input_tokens", "prompt_tokens")
    tokens_in = _first(usage, names[::-1] if dialect == "chat" else names)
    tokens_out = _first(usage, ("output_tokens", "completion_tokens"))
    reads, writes = _anthropic_cache(usage)
    if tokens_in is not None and _apart(usage, dialect):
        tokens_in += (reads or 0) + (writes or 0)
    total = token_count(usage.get("total_tokens"))
    if total is None and tokens_in is not None and tokens_out is not None:
        total = tokens_in + tokens_out
    reasoning = usage_detail_token(usage, _OUTPUT_DETAILS, ("reasoning_tokens",))
    if reasoning is None:
        reasoning = token_count(usage.get("reasoning_tokens"))
    if writes is None:
        writes = usage_detail_token(usage, _INPUT_DETAILS, _CACHE_WRITES)
    return TokenStats(tokens_in, tokens_out, reasoning, total, writes)


def cache_signal(usage: object) -> tuple[bool | None, int | None]:
    """Return whether a cache was hit, and how many tokens came from it; None: not reported."""
    if not is_object(usage):
        return None, None
    cached = usage_detail_token(usage, _INPUT_DETAILS, ("cached_tokens", "cache_read_tokens"))
    if cached is None:
        cached = _first(
            usage, ("cache_read_input_tokens", "prompt_cache_hit_tokens", "cached_tokens")
        )
    return (None, None) if cached is None else (cached > 0, cached)


def usage_of(response: Mapping[str, object]) -> object:
    """Return the usage of a response object, also where a server puts it elsewhere."""
    usage = response.get("usage")
    choices = response.get("choices")
    for place in (response.get("x_groq"), *(choices if is_array(choices) else ())):
        if usage is None and is_object(place):
            usage = place.get("usage")
    return usage


def _first(counts: Mapping[str, object], names: tuple[str, ...]) -> int | None:
    # Twice as fast as a generator, and called several times a model call.
    for name in names:
        value = counts.get(name)
        if is_count(value):
            return value
    return None


def _anthropic_cache(usage: Mapping[str, object]) -> tuple[int | None, int | None]:
    reads = token_count(usage.get("cache_read_input_tokens"))
    return reads, token_count(usage.get("cache_creation_input_tokens"))


def _apart(usage: Mapping[str, object], dialect: str | None) -> bool:
    """Say whether cache reads and writes are counted apart from `input_tokens`."""
    if token_count(usage.get("input_tokens")) is None:
        return False
    if dialect is not None:
        return dialect == "messages"
    return all(usage.get(name) is None for name in _OPENAI_ONLY)
