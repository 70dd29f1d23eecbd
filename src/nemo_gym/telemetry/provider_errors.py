"""What a kind of provider error is called in a diagnosis, and what to do about it. Pure.

Kinds are the categories of `model_calls` and of capture; what has none of these is `OTHER_ERROR`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["OTHER_ERROR", "PROVIDER_ERRORS", "ProviderError"]


@dataclass(frozen=True, slots=True)
class ProviderError:
    """One kind of error."""

    called: str
    """Ends the sentence `50 % of the tries at the provider failed, all of them …`."""
    advice: str


_LOOK = "look at a failed call with 'gym capture show', or at the failures file of the run"

PROVIDER_ERRORS: Mapping[str, ProviderError] = {
    "auth": ProviderError(
        "refused for the key (401, 403)",
        "check the model's key (--model-api-key, policy_api_key) and what it may use",
    ),
    "not_found": ProviderError(
        "not found (404)",
        "check the model's name (--model) and its base URL (--model-url)",
    ),
    "rate_limit": ProviderError(
        "refused for their number (429)",
        "lower --concurrency, or raise the provider's rate limit",
    ),
    "upstream_error": ProviderError(
        "failures of the provider itself (5xx)",
        "see the provider's own log; where it is overloaded, lower --concurrency or add replicas",
    ),
    "timeout": ProviderError(
        "not answered in time",
        "the provider does not answer in time: see what holds it up; where its answers take that "
        "long, raise 'idle_timeout_s' of the model server",
    ),
    "connection": ProviderError(
        "without a connection, or cut off",
        "see whether the provider can be reached at its base URL (--model-url), and stays up",
    ),
    "client_error": ProviderError("refused for what they asked (4xx)", _LOOK),
    "cancelled": ProviderError(
        "given up by who asked",
        "the provider does not answer before rollouts are ended: use a faster one, or raise "
        "--rollout-timeout or the agent's own time limits",
    ),
}
OTHER_ERROR = ProviderError("of another kind", f"{_LOOK}, and at the logs")
