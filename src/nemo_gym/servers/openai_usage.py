"""Usage of several calls added up: unknown plus known is known, unknown plus unknown is unknown."""

from nemo_gym.servers.openai_responses import (
    NeMoGymResponseInputTokensDetails,
    NeMoGymResponseOutputTokensDetails,
    NeMoGymResponseUsage,
)
from nemo_gym.servers.openai_schema import Number

__all__ = ["accumulate_response_usage"]


def accumulate_response_usage(
    total: NeMoGymResponseUsage | None, additional: NeMoGymResponseUsage | None
) -> NeMoGymResponseUsage | None:
    """Return the sum of both as a new usage; None when neither is known."""
    if total is None or additional is None:
        known = additional if total is None else total
        return None if known is None else known.model_copy(deep=True)
    reasoning = _sum(
        total.output_tokens_details and total.output_tokens_details.reasoning_tokens,
        additional.output_tokens_details and additional.output_tokens_details.reasoning_tokens,
    )
    cached = _sum(
        total.input_tokens_details and total.input_tokens_details.cached_tokens,
        additional.input_tokens_details and additional.input_tokens_details.cached_tokens,
    )
    return NeMoGymResponseUsage(
        input_tokens=_sum(total.input_tokens, additional.input_tokens),
        output_tokens=_sum(total.output_tokens, additional.output_tokens),
        total_tokens=_sum(total.total_tokens, additional.total_tokens),
        input_tokens_details=None
        if cached is None
        else NeMoGymResponseInputTokensDetails(cached_tokens=cached),
        output_tokens_details=None
        if reasoning is None
        else NeMoGymResponseOutputTokensDetails(reasoning_tokens=reasoning),
    )


def _sum(one: Number | None, other: Number | None) -> Number | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other
