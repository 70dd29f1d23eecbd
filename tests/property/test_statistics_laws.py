"""Laws of the estimates: subset averages, order, bounds, and the known values of the quantiles."""

import math
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nemo_gym.records import statistics

_rewards = st.floats(0, 1, allow_nan=False)
_task = st.lists(_rewards, min_size=1, max_size=7)
_tasks = st.lists(_task, min_size=2, max_size=8)
_wide = st.lists(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5), min_size=2, max_size=8)


@given(_task, st.data())
def test_expected_max_and_min_are_the_averages_over_all_subsets(
    task: list[float], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(task)))

    subsets = list(combinations(task, k))
    best = math.fsum(map(max, subsets)) / len(subsets)
    worst = math.fsum(map(min, subsets)) / len(subsets)

    assert statistics.expected_max(task, k) == pytest.approx(best)
    assert statistics.expected_min(task, k) == pytest.approx(worst)


@given(st.integers(1, 12), st.data())
def test_of_zeros_and_ones_it_is_the_unbiased_estimator(n: int, data: st.DataObject) -> None:
    passed = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, n))
    task = [1.0] * passed + [0.0] * (n - passed)

    assert statistics.expected_max(task, k) == pytest.approx(
        1 - math.comb(n - passed, k) / math.comb(n, k)
    )
    assert statistics.expected_min(task, k) == pytest.approx(math.comb(passed, k) / math.comb(n, k))


@given(_tasks, st.randoms(use_true_random=False))
def test_order_of_tasks_and_of_rollouts_does_not_matter(tasks: list[list[float]], rnd) -> None:  # type: ignore[no-untyped-def]
    shuffled = [rnd.sample(task, len(task)) for task in rnd.sample(tasks, len(tasks))]

    one, other = statistics.mean_ci(tasks), statistics.mean_ci(shuffled)

    assert one is not None
    assert other is not None
    assert one.value == pytest.approx(other.value)
    assert one.ci95_low == pytest.approx(other.ci95_low, abs=1e-6)
    assert one.ci95_high == pytest.approx(other.ci95_high, abs=1e-6)


@given(st.one_of(_tasks, _wide))
def test_the_interval_holds_the_mean(tasks: list[list[float]]) -> None:
    found = statistics.mean_ci(tasks)

    assert found is not None
    assert found.ci95_low is not None
    assert found.ci95_high is not None
    assert found.ci95_low <= found.value <= found.ci95_high


@given(_tasks)
def test_rewards_between_0_and_1_have_an_interval_between_0_and_1(tasks: list[list[float]]) -> None:
    found = statistics.mean_ci(tasks)

    assert found is not None
    assert found.ci95_low is not None
    assert found.ci95_high is not None
    assert 0.0 <= found.ci95_low <= found.ci95_high <= 1.0


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=3, max_size=3), min_size=2))
def test_pass_at_k_grows_with_k_and_pass_hat_k_falls(tasks: list[list[float]]) -> None:
    best = [statistics.pass_at_k(tasks, k) for k in (1, 2, 3)]
    worst = [statistics.pass_hat_k(tasks, k) for k in (1, 2, 3)]

    at = [found.value for found in best if found]
    hat = [found.value for found in worst if found]
    assert at == sorted(at)
    assert hat == sorted(hat, reverse=True)
    assert at[0] == pytest.approx(hat[0])


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=9), st.integers(2, 50))
def test_repeating_rollouts_that_agree_does_not_narrow_the_interval(
    rewards: list[float], repeats: int
) -> None:
    once = statistics.mean_ci([[reward] for reward in rewards])
    often = statistics.mean_ci([[reward] * repeats for reward in rewards])

    assert once is not None
    assert often is not None
    assert often.ci95_low == pytest.approx(once.ci95_low, abs=1e-9)
    assert often.ci95_high == pytest.approx(once.ci95_high, abs=1e-9)


@pytest.mark.parametrize(
    ("degrees", "quantile"),  # from the published tables of Student's distribution
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (10, 2.228), (30, 2.042), (1000, 1.962)],
)
def test_quantiles_agree_with_the_tables(degrees: int, quantile: float) -> None:
    assert statistics._student_quantile(degrees) == pytest.approx(quantile, rel=2e-3)


def test_all_passed_leaves_room_for_doubt() -> None:
    found = statistics.mean_ci([[1.0]] * 20)

    assert found is not None
    assert found.ci95_low is not None
    assert found.value == found.ci95_high == 1.0
    assert 0.7 < found.ci95_low < 0.95


def test_one_task_has_no_interval_and_none_has_no_mean() -> None:
    assert statistics.mean_ci([[0.0, 1.0]]) == statistics.Estimate(0.5)
    assert statistics.mean_ci([[], []]) is None
    assert statistics.pass_at_k([[1.0]], 2) is None


def test_tasks_with_too_few_rollouts_are_left_out() -> None:
    found = statistics.pass_at_k([[1.0, 0.0], [0.0]], 2)

    assert found is not None
    assert found.value == 1.0


def test_k_outside_the_rollouts_raises() -> None:
    with pytest.raises(ValueError, match="k=3"):
        statistics.expected_max([1.0], 3)


_any_float = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from(
    [1e160, -1.7e308, 1e308]
)
_of_any_size = st.lists(st.lists(_any_float, max_size=5), max_size=6)


@given(_of_any_size, st.integers(1, 3))
@example([[1.757388200993436e159, 5.370036327698172e-161]], 2)
def test_whatever_the_values_what_comes_out_is_finite(tasks: list[list[float]], k: int) -> None:
    known = [value for task in tasks for value in task if math.isfinite(value)]
    found = statistics.mean_ci(tasks)

    assert (found is None) == (not known)
    for one in (found, statistics.pass_at_k(tasks, k), statistics.pass_hat_k(tasks, k)):
        if one is None:
            continue
        assert min(known) <= one.value <= max(known)
        assert one.ci95_low is None or -math.inf < one.ci95_low <= one.value
        assert one.ci95_high is None or math.inf > one.ci95_high >= one.value


@given(_wide, st.integers(100, 900))
def test_values_of_any_scale_have_the_same_estimate_but_for_the_scale(
    tasks: list[list[float]], power: int
) -> None:
    tasks = [*tasks, [2.0]]  # beyond [0, 1], where the method is another
    one = statistics.mean_ci(tasks)
    other = statistics.mean_ci([[math.ldexp(value, power) for value in task] for task in tasks])

    assert one is not None
    assert other is not None
    assert other.value == pytest.approx(
        math.ldexp(one.value, power), rel=1e-9, abs=2.0 ** (power - 40)
    )
    for a, b in ((one.ci95_low, other.ci95_low), (one.ci95_high, other.ci95_high)):
        assert a is not None
        assert b == pytest.approx(math.ldexp(a, power), rel=1e-9, abs=2.0 ** (power - 20))
