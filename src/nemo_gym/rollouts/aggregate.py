"""Numbers of single rollouts in, metrics of each agent out. No files, no clock.

What is kept of a rollout is 16 bytes a metric: its task and the value. A value that is not known
is left out, never counted as 0, and the order in which rollouts finish changes nothing: values are
sorted before they are summed.
"""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeAlias

from nemo_gym.records.metrics import field_metrics
from nemo_gym.records.statistics import mean_of

__all__ = ["REWARD", "AgentSummary", "Aggregator", "RolloutNumbers", "default_key_metrics"]

REWARD = "reward"
_MOST_FIELDS = 256
"""Metrics of one agent; an environment that makes up names without end does not fill memory."""


@dataclass(frozen=True, slots=True)
class RolloutNumbers:
    """What the aggregate takes from one finished rollout."""

    agent: str
    task: int
    """Tells tasks apart; rollouts of one task have the same."""
    values: Mapping[str, float]
    """`reward`, and each numeric field that the environment added."""
    tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    """By name (`tokens_in`, …), those that are known."""
    latency_ms: float | None = None
    """From dispatch to the agent's answer, in ms. None when the row does not say."""


@dataclass(frozen=True, slots=True)
class AgentSummary:
    """The metrics of one agent."""

    agent: str
    tasks: int
    """Tasks with at least one finished rollout."""
    finished: int
    failed: Mapping[str, int]
    """Rollouts that ended without a reward, by failure class."""
    metrics: Mapping[str, float]
    """`mean/reward`, `pass@1/reward`, `pass^1/reward`, … each with `/ci95_low` and `/ci95_high`."""
    tokens: Mapping[str, Mapping[str, float]]
    latency_ms: Mapping[str, float]


_Values: TypeAlias = "array[float]"


@dataclass(slots=True)
class _Column:
    """The known values of one metric with their tasks."""

    tasks: "array[int]" = field(default_factory=lambda: array("q"))
    values: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, task: int, value: float) -> None:
        self.tasks.append(task)
        self.values.append(value)

    def per_task(self) -> list[list[float]]:
        pairs = sorted(zip(self.tasks, self.values, strict=True))
        return [[value for _, value in group] for _, group in groupby(pairs, lambda pair: pair[0])]


@dataclass(slots=True)
class _Agent:
    finished: int = 0
    failed: Counter[str] = field(default_factory=Counter[str])
    columns: dict[str, _Column] = field(default_factory=dict[str, _Column])
    tokens: dict[str, _Values] = field(default_factory=dict[str, _Values])
    latency: _Values = field(default_factory=lambda: array("d"))


class Aggregator:
    """Takes rollouts one at a time, in any order; `summaries` may be asked at any time."""

    def __init__(self) -> None:
        self.reward_total = 0.0
        """Of all agents, for a running mean."""
        self._agents: dict[str, _Agent] = {}

    def add(self, numbers: RolloutNumbers) -> None:
        """Count one finished rollout."""
        agent = self._agents.setdefault(numbers.agent, _Agent())
        agent.finished += 1
        self.reward_total += numbers.values.get(REWARD, 0.0)
        for name, value in numbers.values.items():
            column = agent.columns.get(name)
            if column is None:
                if len(agent.columns) >= _MOST_FIELDS:
                    continue
                column = agent.columns[name] = _Column()
            column.add(numbers.task, value)
        for name, count in numbers.tokens.items():
            agent.tokens.setdefault(name, array("d")).append(count)
        if numbers.latency_ms is not None:
            agent.latency.append(numbers.latency_ms)

    def add_failure(self, agent: str, failure_class: str) -> None:
        """Count one rollout that ended without a reward."""
        self._agents.setdefault(agent, _Agent()).failed[failure_class] += 1

    def summaries(self) -> list[AgentSummary]:
        """Return the metrics of every agent, by name."""
        return [_summary(name, self._agents[name]) for name in sorted(self._agents)]


def _summary(name: str, agent: _Agent) -> AgentSummary:
    metrics: dict[str, float] = {}
    tasks = 0
    for field_name in sorted(agent.columns, key=lambda f: (f != REWARD, f)):
        per_task = agent.columns[field_name].per_task()
        tasks = max(tasks, len(per_task))
        metrics.update(field_metrics(field_name, per_task))
    return AgentSummary(
        agent=name,
        tasks=tasks,
        finished=agent.finished,
        failed=dict(sorted(agent.failed.items())),
        metrics=metrics,
        tokens={key: _distribution(agent.tokens[key], total=True) for key in sorted(agent.tokens)},
        latency_ms=_distribution(agent.latency),
    )


def _distribution(values: Iterable[float], *, total: bool = False) -> dict[str, float]:
    """Return known, (total,) mean, p50, p95 and max of values; empty when none is known."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        "known": len(ordered),
        **({"total": math.fsum(ordered)} if total else {}),
        "mean": mean_of(ordered),
        "p50": _quantile(ordered, 0.50),
        "p95": _quantile(ordered, 0.95),
        "max": ordered[-1],
    }


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of the values do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def default_key_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics worth a line in a table: the mean reward and the widest pass@k, pass^k."""
    return {key: metrics[key] for key in _default_keys(metrics)}


def _default_keys(metrics: Mapping[str, float]) -> Iterator[str]:
    if f"mean/{REWARD}" in metrics:
        yield f"mean/{REWARD}"
    for prefix in ("pass@", "pass^"):
        ks = [
            int(key.removeprefix(prefix).partition("/")[0])
            for key in metrics
            if key.startswith(prefix) and key.endswith(f"/{REWARD}")
        ]
        if ks and max(ks) > 1:
            yield f"{prefix}{max(ks)}/{REWARD}"
