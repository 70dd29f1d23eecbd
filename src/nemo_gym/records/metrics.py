"""Values of one field by task in, its metrics by name out. No rows, no I/O.

`mean/<field>`, `pass@{k}/<field>` (expected best of k rollouts) and `pass^{k}/<field>` (expected
worst), each with `…/ci95_low` and `…/ci95_high` where there are two tasks or more.
"""

from collections.abc import Sequence

from nemo_gym.records.statistics import Estimate, mean_ci, pass_at_k, pass_hat_k

__all__ = ["field_metrics", "ks_of"]

_EVERY_K_UP_TO = 16


def field_metrics(name: str, values_per_task: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return the metrics of a field, given the known values of each task; none without values."""
    found = _told(f"mean/{name}", mean_ci(values_per_task))
    for k in ks_of(max(map(len, values_per_task), default=0)):
        found |= _told(f"pass@{k}/{name}", pass_at_k(values_per_task, k))
        found |= _told(f"pass^{k}/{name}", pass_hat_k(values_per_task, k))
    return found


def ks_of(most: int) -> list[int]:
    """Return the k for which pass@k is told when a task has at most `most` rollouts.

    Every one to 16, then the powers of two, and `most` itself.
    """
    every = range(1, min(most, _EVERY_K_UP_TO) + 1)
    powers = (2**power for power in range(5, most.bit_length()))
    return sorted({*every, *powers, most} - {0})


def _told(key: str, estimate: Estimate | None) -> dict[str, float]:
    if estimate is None:
        return {}
    found = {key: estimate.value}
    if estimate.ci95_low is not None and estimate.ci95_high is not None:
        found |= {f"{key}/ci95_low": estimate.ci95_low, f"{key}/ci95_high": estimate.ci95_high}
    return found
