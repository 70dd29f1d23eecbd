"""What a server makes of verify responses, before an environment adds its own."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nemo_gym.rollouts.aggregate import Aggregator, RolloutNumbers
from nemo_gym.servers.metrics import agent_metrics, by_task, default_key_metrics, group_metrics


def _row(task: int, reward: float, **more: Any) -> dict[str, Any]:
    return {"_ng_task_index": task, "reward": reward, **more}


_ROWS = [_row(0, 1.0), _row(1, 0.0), _row(0, 0.0), _row(1, 0.0)]


def test_rows_are_grouped_by_task_in_order_of_appearance() -> None:
    tasks = by_task([_row(5, 1.0), _row(2, 0.0), _row(5, 0.0)])

    assert [[row["reward"] for row in rows] for rows in tasks] == [[1.0, 0.0], [0.0]]


def test_rows_without_a_task_are_tasks_of_their_own() -> None:
    assert len(by_task([{"reward": 1.0}, {"reward": 0.0}])) == 2


def test_the_reward_has_mean_pass_at_k_and_pass_hat_k_with_intervals() -> None:
    metrics = agent_metrics(by_task(_ROWS))

    assert metrics["mean/reward"] == 0.25
    assert metrics["pass@1/reward"] == metrics["pass^1/reward"] == 0.25
    assert metrics["pass@2/reward"] == 0.5
    assert metrics["pass^2/reward"] == 0.0
    for name in ("mean", "pass@2", "pass^2"):
        low, high = metrics[f"{name}/reward/ci95_low"], metrics[f"{name}/reward/ci95_high"]
        assert low <= metrics[f"{name}/reward"] <= high


def test_every_numeric_field_is_a_metric_and_nothing_else() -> None:
    rows = [
        _row(i, 1.0, correct=True, steps=i, text="x", items=[1], reward_components={"a": 0.5})
        for i in range(2)
    ]

    means = {name for name in agent_metrics(by_task(rows)) if name.startswith("mean/")}
    assert {name for name in means if "/ci95" not in name} == {
        "mean/reward",
        "mean/correct",
        "mean/steps",
        "mean/reward_components/a",
    }


def test_an_unknown_value_is_left_out_and_not_counted_as_zero() -> None:
    rows = [_row(0, 1.0, score=4), _row(1, 1.0, score=None), _row(2, 1.0)]

    assert agent_metrics(by_task(rows))["mean/score"] == 4.0


def test_a_group_says_its_task_its_rollouts_and_its_means() -> None:
    assert group_metrics(by_task(_ROWS)) == [
        {"_ng_task_index": 0, "rollouts": 2, "mean/reward": 0.5},
        {"_ng_task_index": 1, "rollouts": 2, "mean/reward": 0.0},
    ]


def test_the_table_shows_the_reward_once() -> None:
    keys = default_key_metrics(agent_metrics(by_task(_ROWS)))

    assert list(keys) == ["mean/reward", "pass@2/reward", "pass^2/reward"]


def test_no_rows_give_no_metrics() -> None:
    assert agent_metrics(by_task([])) == {}
    assert group_metrics([]) == []


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 1.0])), min_size=1))
def test_metrics_do_not_depend_on_the_order_of_rows(pairs: list[tuple[int, float]]) -> None:
    rows = [_row(task, reward) for task, reward in pairs]

    forward, backward = agent_metrics(by_task(rows)), agent_metrics(by_task(rows[::-1]))

    assert forward.keys() == backward.keys()
    assert all(forward[name] == pytest.approx(backward[name]) for name in forward)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0]), st.none() | st.integers(0, 9)
        )
    )
)
@example([(0, 1.0, None)] * 3 + [(1, 0.0, 2)] * 5)
def test_the_defaults_of_an_environment_are_what_the_driver_computes(
    drawn: list[tuple[int, float, int | None]],
) -> None:
    rows = [_row(task, reward, score=score) for task, reward, score in drawn]
    driver = Aggregator()
    for task, reward, score in drawn:
        values = {"reward": reward} | ({} if score is None else {"score": float(score)})
        driver.add(RolloutNumbers("agent", task, values))

    found = agent_metrics(by_task(rows))

    expected = driver.summaries()[0].metrics if drawn else {}
    assert found == {name: pytest.approx(value) for name, value in expected.items()}


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), 10**400])
def test_a_number_that_no_float_holds_is_left_out(odd: float) -> None:
    tasks = by_task([_row(0, odd, reward_components={"a": odd}), _row(1, 1.0)])

    assert agent_metrics(tasks)["mean/reward"] == 1.0
    assert group_metrics(tasks)[0] == {"_ng_task_index": 0, "rollouts": 1}


def test_rewards_whose_sum_no_float_holds_have_metrics_all_the_same() -> None:
    tasks = by_task([_row(task, 1.7e308) for task in (0, 0, 1, 1)])

    assert agent_metrics(tasks)["mean/reward"] == group_metrics(tasks)[0]["mean/reward"] == 1.7e308
