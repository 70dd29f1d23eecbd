"""Verify responses in, metrics out: per task, over all tasks, and the few worth showing.

A metric is any numeric field of the responses (a bool counts as 0 or 1), and each part of
`reward_components`. Over tasks it has `mean/<field>`, and with repeats `pass@{k}/<field>` (expected
best of k) and `pass^{k}/<field>` (expected worst of k), each with `…/ci95_low` and `…/ci95_high`
by the method of `records.statistics`. Fields that are not known in a row are left out of it, and so
are numbers that no float can hold.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nemo_gym.ids import TASK_INDEX_KEY
from nemo_gym.records.metrics import field_metrics
from nemo_gym.records.statistics import mean_of

__all__ = ["agent_metrics", "by_task", "default_key_metrics", "group_metrics"]

_COMPONENTS = "reward_components"
_SEPARATE = "/"


def by_task(rows: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """Group rows by task, in order of first appearance; a row without a task is one of its own."""
    groups: dict[object, list[dict[str, Any]]] = {}
    for position, row in enumerate(rows):
        task = row.get(TASK_INDEX_KEY)
        key = ("row", position) if task is None else ("task", str(task))
        groups.setdefault(key, []).append(dict(row))
    return list(groups.values())


def group_metrics(tasks: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return one entry a task: its index, its rollouts, and the mean of each numeric field."""
    return [
        {
            TASK_INDEX_KEY: rows[0].get(TASK_INDEX_KEY),
            "rollouts": len(rows),
            **{f"mean/{name}": mean_of(v) for name, v in _values(rows).items()},
        }
        for rows in tasks
    ]


def agent_metrics(tasks: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """Return the metrics over all tasks, by name."""
    per_task = [_values(rows) for rows in tasks]
    names = list(dict.fromkeys(name for values in per_task for name in values))
    metrics: dict[str, float] = {}
    for name in names:
        metrics |= field_metrics(name, [values.get(name, []) for values in per_task])
    return metrics


def default_key_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a table shows unless an environment says otherwise: the metrics of the reward."""
    return {
        name: value
        for name, value in metrics.items()
        if name.endswith("/reward") and not name.startswith(("pass@1/", "pass^1/"))
    }


def _values(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, value in _numbers(row):
            values.setdefault(name, []).append(value)
    return values


def _numbers(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in row.items():
        if name.startswith("_ng_"):
            continue
        if (number := _finite(value)) is not None:
            yield name, number
        elif name == _COMPONENTS and isinstance(value, Mapping):
            for part, below in value.items():
                if (number := _finite(below)) is not None:
                    yield f"{name}{_SEPARATE}{part}", number


def _finite(value: object) -> float | None:
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
