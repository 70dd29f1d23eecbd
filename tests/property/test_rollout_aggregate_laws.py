"""Laws of the aggregate: the order of rollouts changes nothing, and unknown never becomes 0."""

import math
import random
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym.records.metrics import field_metrics, ks_of
from nemo_gym.rollouts.aggregate import Aggregator, RolloutNumbers, default_key_metrics

rewards = st.floats(-5, 5, allow_nan=False)
rollouts = st.builds(
    RolloutNumbers,
    agent=st.sampled_from(["a", "b"]),
    task=st.integers(0, 3),
    values=st.fixed_dictionaries({"reward": rewards}, optional={"speed": rewards}),
    tokens=st.dictionaries(st.sampled_from(["tokens_in", "tokens_out"]), st.integers(0, 10**6)),
    latency_ms=st.none() | st.floats(0, 10**6),
)


def summaries(found: list[RolloutNumbers]) -> Any:
    aggregator = Aggregator()
    for numbers in found:
        aggregator.add(numbers)
    return aggregator.summaries()


@given(st.lists(rollouts, max_size=20), st.randoms(use_true_random=False))
def test_the_order_in_which_rollouts_finish_changes_nothing(
    found: list[RolloutNumbers], chance: random.Random
) -> None:
    shuffled = list(found)
    chance.shuffle(shuffled)

    assert summaries(shuffled) == summaries(found)


@given(st.lists(rollouts, min_size=1, max_size=20))
def test_a_mean_is_that_of_the_known_values(found: list[RolloutNumbers]) -> None:
    known = defaultdict(list)
    for numbers in found:
        for name, value in numbers.values.items():
            known[numbers.agent, name].append(value)

    for summary in summaries(found):
        for name in ("reward", "speed"):
            values = known[summary.agent, name]
            mean = summary.metrics.get(f"mean/{name}")
            assert (mean is None) == (not values)
            if mean is not None:
                assert math.isclose(mean, math.fsum(values) / len(values), abs_tol=1e-9)


@given(st.lists(rollouts, min_size=1, max_size=20))
def test_tokens_and_latency_count_what_is_known_only(found: list[RolloutNumbers]) -> None:
    for summary in summaries(found):
        own = [numbers for numbers in found if numbers.agent == summary.agent]
        latencies = [n.latency_ms for n in own if n.latency_ms is not None]
        tokens = [n.tokens["tokens_in"] for n in own if "tokens_in" in n.tokens]

        assert summary.latency_ms.get("known", 0) == len(latencies)
        assert ("tokens_in" in summary.tokens) == bool(tokens)
        if tokens:
            assert summary.tokens["tokens_in"]["total"] == sum(tokens)
            assert summary.tokens["tokens_in"]["max"] == max(tokens)


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=12))
def test_pass_at_k_lies_between_pass_hat_k_and_one(outcomes: list[tuple[int, bool]]) -> None:
    found = [RolloutNumbers("a", task, {"reward": float(ok)}) for task, ok in outcomes]

    metrics = summaries(found)[0].metrics

    for key, value in metrics.items():
        if key.startswith("pass@") and key.endswith("/reward"):
            assert metrics[key.replace("@", "^", 1)] <= value + 1e-12 <= 1 + 1e-9


@given(st.integers(1, 5000))
def test_the_ks_are_in_order_and_end_with_the_number_of_repeats(most: int) -> None:
    ks = ks_of(most)

    assert ks == sorted(set(ks))
    assert (ks[0], ks[-1]) == (1, most)
    assert len(ks) <= 16 + 13


def test_pass_at_k_of_a_known_case_is_the_binomial_estimate() -> None:
    # n = 4, c = 2: pass@2 = 1 - C(2,2)/C(4,2) = 5/6, pass^2 = C(2,2)/C(4,2) = 1/6
    found = [RolloutNumbers("a", 0, {"reward": reward}) for reward in (1.0, 0.0, 1.0, 0.0)]

    (summary,) = summaries(found)

    assert math.isclose(summary.metrics["pass@2/reward"], 5 / 6)
    assert math.isclose(summary.metrics["pass^2/reward"], 1 / 6)
    assert set(default_key_metrics(summary.metrics)) == {
        "mean/reward",
        "pass@4/reward",
        "pass^4/reward",
    }


def test_a_field_without_a_known_value_has_no_metrics() -> None:
    assert field_metrics("score", []) == field_metrics("score", [[], []]) == {}


def test_an_environment_that_makes_up_names_without_end_does_not_fill_memory() -> None:
    aggregator = Aggregator()
    for n in range(1000):
        aggregator.add(RolloutNumbers("a", n, {"reward": 1.0, f"field_{n}": 1.0}))

    (summary,) = aggregator.summaries()

    means = [key for key in summary.metrics if key.startswith("mean/")]
    assert summary.metrics["mean/reward"] == 1.0
    assert len(means) < 1000


@pytest.mark.parametrize(
    ("metrics", "shown"),
    [
        ({}, []),
        ({"mean/score": 1.0, "pass@2/score": 1.0}, []),
        ({"mean/reward": 1.0, "pass@1/reward": 1.0}, ["mean/reward"]),
        ({"pass@2/reward": 1.0, "pass@10/reward": 1.0}, ["pass@10/reward"]),
    ],
)
def test_the_table_shows_the_mean_and_the_widest_k(
    metrics: dict[str, float], shown: list[str]
) -> None:
    assert list(default_key_metrics(metrics)) == shown


def test_an_agent_whose_rollouts_all_failed_has_counts_and_no_metrics() -> None:
    aggregator = Aggregator()
    aggregator.add_failure("a", "timeout")
    aggregator.add_failure("a", "timeout")

    (summary,) = aggregator.summaries()

    assert (summary.finished, summary.failed, summary.metrics) == (0, {"timeout": 2}, {})
