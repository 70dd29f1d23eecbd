"""Usage of several calls added up; what nobody reported stays unknown."""

from nemo_gym.servers.openai_responses import NeMoGymResponseUsage
from nemo_gym.servers.usage import add_usage

__all__ = ["accumulate_response_usage"]


def accumulate_response_usage(
    total: NeMoGymResponseUsage | None, additional: NeMoGymResponseUsage | None
) -> NeMoGymResponseUsage | None:
    """Return the sum of both as a new usage; None when neither is known."""
    known = [usage.model_dump() for usage in (total, additional) if usage is not None]
    if not known:
        return None
    return NeMoGymResponseUsage.model_validate(add_usage(known[0], known[1] if known[1:] else None))
