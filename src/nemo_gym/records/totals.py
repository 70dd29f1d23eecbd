"""Records of one rollout in, their totals out. Pure, and the same in whatever order they come."""

from collections.abc import Iterable
from math import fsum

from nemo_gym.records.model_call import ModelCallRecord

__all__ = ["aggregate"]


def aggregate(calls: Iterable[ModelCallRecord]) -> dict[str, int | float | None]:
    """Return the seven totals; each sums the values that were reported, None when none was.

    Tokens are counts, latency is in ms (the sum over calls, whether or not they overlapped).
    """
    calls = list(calls)
    return {
        "tokens_in": _sum(call.tokens_in for call in calls),
        "tokens_out": _sum(call.tokens_out for call in calls),
        "tokens_reasoning": _sum(call.tokens_reasoning for call in calls),
        "tokens_total": _sum(call.tokens_total for call in calls),
        "cached_tokens": _sum(call.cached_tokens for call in calls),
        "latency_total_ms": _exact_sum(call.latency_total_ms for call in calls),
        "num_calls": len(calls),
    }


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _exact_sum(values: Iterable[float | None]) -> float | None:
    # Rounded once, at the end: adding floats one by one depends on their order.
    known = [value for value in values if value is not None]
    return fsum(known) if known else None
