"""What a run amounts to: the aggregate of each agent in, `x_aggregate_metrics.json` out."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from nemo_gym.files.replace import replace_file
from nemo_gym.rollouts.aggregate import REWARD, AgentSummary, default_key_metrics
from nemo_gym.rollouts.environment import EnvironmentMetrics
from nemo_gym.wire.json import dumps

__all__ = ["AgentReport", "report_of", "summary_document", "write_summary"]

_SCHEMA_VERSION = "1.0"
_OF_A_FIELD = re.compile(r"(?:mean|pass[@^]\d+)/(?P<field>.+?)(?:/ci95_(?:low|high))?")
_METHOD = (
    "95 % intervals clustered by task: Student's t on the cluster-robust standard error; "
    "Wilson score on the effective sample size where all values lie in [0, 1]"
)


@dataclass(frozen=True, slots=True)
class AgentReport:
    """The metrics of one agent, those of its environment among them."""

    summary: AgentSummary
    agent_metrics: Mapping[str, object]
    key_metrics: Mapping[str, object]
    group_level_metrics: Sequence[object] = ()
    notes: tuple[str, ...] = ()


def report_of(
    summary: AgentSummary,
    environment: EnvironmentMetrics,
    row_keys: frozenset[str] = frozenset(),
) -> AgentReport:
    """Lay what the environment computed over what the driver did.

    Averages of fields that rows brought along (`row_keys`) say nothing of the agent: they are left
    out of what the environment's defaults add.
    """
    theirs = {
        key: value
        for key, value in environment.agent_metrics.items()
        if _field_of(key) not in row_keys - {REWARD}
    }
    return AgentReport(
        summary,
        {**summary.metrics, **theirs},
        dict(environment.key_metrics) or dict(default_key_metrics(summary.metrics)),
        environment.group_level_metrics,
        environment.notes,
    )


def _field_of(metric: str) -> str | None:
    """Return the field of `mean/<field>`, `pass@1/<field>/ci95_low` and the like."""
    found = _OF_A_FIELD.fullmatch(metric)
    return None if found is None else found["field"]


def summary_document(reports: Sequence[AgentReport]) -> dict[str, object]:
    """Return the metrics of a run as a JSON document."""
    return {
        "schema_version": _SCHEMA_VERSION,
        "ci95_method": _METHOD,
        "agents": [_agent_document(report) for report in reports],
    }


def _agent_document(report: AgentReport) -> dict[str, object]:
    summary = report.summary
    return {
        "agent_ref": {"name": summary.agent},
        "counts": {
            "tasks": summary.tasks,
            "finished": summary.finished,
            "failed": sum(summary.failed.values()),
            "failed_by_class": dict(summary.failed),
        },
        "agent_metrics": dict(report.agent_metrics),
        "key_metrics": dict(report.key_metrics),
        "group_level_metrics": list(report.group_level_metrics),
        "tokens": {key: dict(value) for key, value in summary.tokens.items()},
        "latency_ms": dict(summary.latency_ms),
        "notes": list(report.notes),
    }


def write_summary(path: Path, reports: Sequence[AgentReport]) -> None:
    """Put the metrics of a run in place, whole and durable; raises `OSError`."""
    document = summary_document(reports)
    replace_file(path, dumps(document, str, option=orjson.OPT_INDENT_2) + b"\n")
