"""How a run of rollouts is told at its end: tables for people, one document for machines."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import click

from nemo_gym.cli.output import print_table
from nemo_gym.cli.progress import shown_duration
from nemo_gym.rollouts.run import RunReport
from nemo_gym.rollouts.summary import AgentReport, summary_document

__all__ = ["print_agents", "print_report", "report_document"]

_COLUMNS = ("agent", "rollouts", "failed", "mean reward [95 %]", "tokens in / out", "p50 / p95")
_RIGHT = ("rollouts", "failed", "mean reward [95 %]", "value", "tokens in / out", "p50 / p95")
_MEAN = "mean/reward"
_PASS = re.compile(r"(?P<kind>pass[@^])(?P<k>\d+)/(?P<field>.+)")


def print_report(report: RunReport, diagnosis: str | None = None) -> None:
    """Print the tables of a run, what went wrong, what slowed it down, and where the files are."""
    print_agents(report.agents)
    if report.failed:
        classes = ", ".join(f"{count} {name}" for name, count in sorted(report.failed.items()))
        click.echo(f"failed: {classes}")
    if report.pending:
        click.echo(f"not run: {report.pending} of {report.planned}; go on with --resume")
    click.echo(f"wall time: {shown_duration(report.wall_s)}")
    if diagnosis:
        click.echo(f"diagnosis: {diagnosis}")
    click.echo(f"rollouts:  {report.files.output}")
    if report.failed:
        click.echo(f"failures:  {report.files.failures}")
    click.echo(f"metrics:   {report.files.aggregate}")
    click.echo(f"manifest:  {report.files.manifest}")


def print_agents(agents: Sequence[AgentReport]) -> None:
    """Print one line an agent, then its further key metrics."""
    if not agents:
        return
    print_table(_COLUMNS, [_agent_row(report) for report in agents], right=_RIGHT)
    rows = [row for report in agents for row in _metric_rows(report)]
    if rows:
        click.echo()
        print_table(("agent", "metric", "value", "95 % interval"), rows, right=_RIGHT)
    for report in agents:
        for note in report.notes:
            click.echo(f"note: {report.summary.agent}: {note}")
    click.echo()


def _agent_row(report: AgentReport) -> list[object]:
    summary, metrics = report.summary, report.agent_metrics
    reward = (_number(metrics.get(_MEAN)), _interval(metrics, _MEAN))
    tokens = (_total(summary.tokens, key) for key in ("tokens_in", "tokens_out"))
    latency = (_seconds(summary.latency_ms.get(key)) for key in ("p50", "p95"))
    return [
        summary.agent,
        summary.finished,
        sum(summary.failed.values()),
        " ".join(filter(None, reward)) or None,
        _pair(*tokens),
        _pair(*latency),
    ]


def _pair(one: str | None, other: str | None) -> str | None:
    return None if one is other is None else f"{one or '-'} / {other or '-'}"


def _metric_rows(report: AgentReport) -> Iterator[list[object]]:
    for key in _shown_keys(report.key_metrics):
        if key != _MEAN and not key.endswith(("/ci95_low", "/ci95_high")):
            interval = _interval({**report.agent_metrics, **report.key_metrics}, key)
            yield [report.summary.agent, key, _number(report.key_metrics[key]), interval]


def _shown_keys(metrics: Iterable[str]) -> list[str]:
    """Return the keys worth a line: of `pass@1/x`, `pass@2/x`, … the one with the largest k."""
    largest: dict[tuple[str, str], int] = {}
    for key in metrics:
        if found := _PASS.fullmatch(key):
            name = (found["kind"], found["field"])
            largest[name] = max(largest.get(name, 0), int(found["k"]))
    shown = []
    for key in metrics:
        found = _PASS.fullmatch(key)
        if found is None or largest[found["kind"], found["field"]] == int(found["k"]):
            shown.append(key)
    return shown


def _interval(metrics: Mapping[str, object], key: str) -> str | None:
    low, high = metrics.get(f"{key}/ci95_low"), metrics.get(f"{key}/ci95_high")
    return None if low is None or high is None else f"[{_number(low)}, {_number(high)}]"


def _number(value: object) -> str | None:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) >= 1000 else f"{value:.3f}"
    return None if value is None else str(value)


def _seconds(ms: float | None) -> str | None:
    if ms is None:
        return None
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def _total(tokens: Mapping[str, Mapping[str, float]], key: str) -> str | None:
    return f"{tokens[key]['total']:,.0f}" if key in tokens else None


def report_document(report: RunReport) -> dict[str, object]:
    """Return the report of a run as a JSON document."""
    files = report.files
    return {
        "status": report.status,
        "planned": report.planned,
        "finished": report.finished,
        "failed": sum(report.failed.values()),
        "failed_by_class": dict(report.failed),
        "pending": report.pending,
        "wall_s": round(report.wall_s, 3),
        "warnings": list(report.warnings),
        "files": {
            "output": str(files.output),
            "failures": str(files.failures),
            "materialized_inputs": str(files.materialized),
            "aggregate_metrics": str(files.aggregate),
            "manifest": str(files.manifest),
        },
        **summary_document(report.agents),
    }
