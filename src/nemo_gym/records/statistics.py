"""Rewards of tasks in, estimates with 95 % intervals out. Numbers only; no names, no I/O.

A run has T tasks with one or more rollouts each. Rollouts of one task are not independent, so
every interval here is *clustered by task*: its width follows the spread between tasks, and adding
repeats of the same tasks does not make it narrower than the tasks allow.

Method of the interval of a mean. The standard error is the cluster-robust one (CR1)::

    se = sqrt(T / (T - 1) * sum_t (sum_i (x_ti - mean))^2) / n

With t the 97.5 % quantile of Student's distribution at T - 1 degrees of freedom, the interval is
`mean ± t * se`; where every value lies in [0, 1] it is the Wilson score interval for the effective
sample size `mean * (1 - mean) / se^2` instead, which stays inside [0, 1] and does not shrink to
nothing when all tasks passed or all failed (there the effective sample size is T). With fewer than
two tasks no interval is known.

Values that are not finite are not known, and left out. What comes out is finite: values too large
to be squared are scaled down by a power of two first, which rounds nothing; a bound of an interval
that no float can hold is not known.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

__all__ = [
    "Estimate",
    "expected_max",
    "expected_min",
    "mean_ci",
    "mean_of",
    "pass_at_k",
    "pass_hat_k",
]

_QUANTILE = 0.975
_LARGE = 256
"""Binary exponent up to which sums and squares of sums stay far from the largest float."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % interval."""

    value: float
    ci95_low: float | None = None
    """None: not known; there are fewer than two tasks, or no float is that large."""
    ci95_high: float | None = None


def mean_ci(values_per_task: Sequence[Sequence[float]]) -> Estimate | None:
    """Return the mean over all values, with an interval clustered by task.

    Tasks without a value are left out; None when no value is left.
    """
    tasks = [task for task in _finite(values_per_task) if task]
    if not tasks:
        return None
    exponent = _exponent(value for task in tasks for value in task)
    if not exponent:
        is_share = all(0.0 <= value <= 1.0 for task in tasks for value in task)
        return _mean_ci(tasks, is_share=is_share)
    found = _mean_ci([_scaled(task, -exponent) for task in tasks], is_share=False)
    low, high = _held(found.ci95_low, exponent), _held(found.ci95_high, exponent)
    return Estimate(math.ldexp(found.value, exponent), low, high)


def mean_of(values: Sequence[float]) -> float:
    """Return the mean of finite values, one at least; it is finite too."""
    exponent = _exponent(values)
    if exponent:
        return math.ldexp(mean_of(_scaled(values, -exponent)), exponent)
    return min(max(math.fsum(values) / len(values), min(values)), max(values))


def pass_at_k(rewards_per_task: Sequence[Sequence[float]], k: int) -> Estimate | None:
    """Return the expected best reward of `k` rollouts of a task, averaged over the tasks.

    For rewards of 0 and 1 this is the unbiased pass@k. Tasks with fewer than `k` rollouts say
    nothing about it and are left out; None when none is left.
    """
    tasks = _finite(rewards_per_task)
    return mean_ci([[expected_max(task, k)] for task in tasks if len(task) >= k])


def pass_hat_k(rewards_per_task: Sequence[Sequence[float]], k: int) -> Estimate | None:
    """Return the expected worst reward of `k` rollouts of a task, averaged over the tasks.

    For rewards of 0 and 1 this is pass^k: the chance that all `k` succeed. Tasks with fewer than
    `k` rollouts are left out; None when none is left.
    """
    tasks = _finite(rewards_per_task)
    return mean_ci([[expected_min(task, k)] for task in tasks if len(task) >= k])


def expected_max(values: Sequence[float], k: int) -> float:
    """Return the mean, over all subsets of `k` of the values, of the largest one (1 <= k <= n)."""
    n = len(values)
    if not 1 <= k <= n:
        raise ValueError(f"k must be from 1 to the number of values: k={k}, values={n}")
    # The i-th smallest (from 0) is the largest of a subset whose others are among the i below it,
    # so its weight is C(i, k-1) / C(n, k): k / n at the top, and from one to the next below it
    # times (i - k + 1) / i. Whole binomials would have thousands of digits at thousands of values.
    exponent = _exponent(values)
    if exponent:
        # What is very small beside the largest loses digits when it is scaled down.
        found = math.ldexp(expected_max(_scaled(values, -exponent), k), exponent)
        return min(max(found, min(values)), max(values))
    weight = k / n
    terms: list[float] = []
    for i, value in zip(range(n - 1, k - 2, -1), sorted(values, reverse=True), strict=False):
        terms.append(weight * value)
        weight *= (i - k + 1) / i if i else 0.0
    return min(math.fsum(terms), max(values))


def expected_min(values: Sequence[float], k: int) -> float:
    """Return the mean, over all subsets of `k` of the values, of the smallest one."""
    return -expected_max([-value for value in values], k)


def _mean_ci(tasks: Sequence[Sequence[float]], *, is_share: bool) -> Estimate:
    """Return the estimate from tasks that all have values, none of them too large to be squared.

    `is_share`: they lie in [0, 1] by what they are, not because they were scaled.
    """
    values = [value for task in tasks for value in task]
    mean = mean_of(values)
    if len(tasks) < 2:
        return Estimate(mean)
    squares = math.fsum(math.fsum(value - mean for value in task) ** 2 for task in tasks)
    error = math.sqrt(len(tasks) / (len(tasks) - 1) * squares) / len(values)
    quantile = _student_quantile(len(tasks) - 1)
    if is_share:
        return _wilson(min(max(mean, 0.0), 1.0), error, quantile, len(tasks))
    return Estimate(mean, mean - quantile * error, mean + quantile * error)


def _finite(values_per_task: Iterable[Sequence[float]]) -> Iterator[list[float]]:
    for task in values_per_task:
        yield [value for value in task if math.isfinite(value)]


def _exponent(values: Iterable[float]) -> int:
    """Return the power of two by which `values` are to be divided; 0 where they may stay."""
    exponent = math.frexp(max(map(abs, values), default=0.0))[1]
    return exponent if exponent > _LARGE else 0


def _scaled(values: Iterable[float], exponent: int) -> list[float]:
    return [math.ldexp(value, exponent) for value in values]


def _held(bound: float | None, exponent: int) -> float | None:
    try:
        return None if bound is None else math.ldexp(bound, exponent)
    except OverflowError:
        return None


def _wilson(mean: float, error: float, quantile: float, tasks: int) -> Estimate:
    spread = mean * (1.0 - mean)
    if spread > 0.0 and error**2 == 0.0:
        return Estimate(mean, mean, mean)
    size = spread / error**2 if spread > 0.0 else float(tasks)
    ratio = quantile**2 / size
    centre = (mean + ratio / 2) / (1 + ratio)
    half = quantile / (1 + ratio) * math.sqrt(spread / size + ratio / (4 * size))
    # At 0 and 1 the bound is the mean itself; rounding must not put it on the wrong side.
    return Estimate(mean, min(max(centre - half, 0.0), mean), max(min(centre + half, 1.0), mean))


def _student_quantile(degrees: int) -> float:
    """Return the 97.5 % quantile: exact to 2 degrees, else the expansion in 1 / degrees.

    The expansion (Abramowitz and Stegun 26.7.5) is right to 0.2 % at 3 degrees and better above.
    """
    if degrees == 1:
        return math.tan(math.pi * (_QUANTILE - 0.5))
    if degrees == 2:
        tail = 2 * _QUANTILE - 1
        return tail * math.sqrt(2 / (1 - tail**2))
    z = NormalDist().inv_cdf(_QUANTILE)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return math.fsum(term / degrees**power for power, term in enumerate(terms))
