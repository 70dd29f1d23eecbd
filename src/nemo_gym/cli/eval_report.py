"""How a run of rollouts is told at its end: tables for people, one document for machines."""

import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap

import click

from nemo_gym.cli.counted import counted
from nemo_gym.cli.output import print_table
from nemo_gym.cli.progress import shown_wall_time
from nemo_gym.rollouts.failure_examples import failure_examples
from nemo_gym.rollouts.run import RunReport
from nemo_gym.rollouts.summary import AgentReport, summary_document

__all__ = ["print_agents", "print_report", "report_document"]

_REWARDS = ("agent", "rollouts", "failed", "mean reward [95 %]")
_METRICS = ("agent", "metric", "value", "95 % interval")
# Side by side all of this would be wider than a terminal of 80 columns.
_COSTS = ("agent", "tokens in", "tokens out", "latency p50", "p95")
_RIGHT = (*_REWARDS[1:], "value", *_COSTS[1:])
_LONGEST_EXAMPLE = 240
_MEAN = "mean/reward"
_PASS = re.compile(r"(?P<kind>pass[@^])(?P<k>\d+)/(?P<field>.+)")


def print_report(
    report: RunReport, diagnosis: str | None = None, log_dir: Path | None = None
) -> None:
    """Print the tables of a run, what went wrong, what slowed it down, and where the files are."""
    print_agents(report.agents)
    _print_failures(report)
    if report.pending:
        click.echo(f"not run: {report.pending} of {report.planned}; go on with --resume")
    elif report.ran == 0 and report.planned:
        click.echo("nothing was left to run: these are the results that were there")
    click.echo(f"wall time: {shown_wall_time(report.wall_s)}{_of_this_session(report)}")
    if diagnosis:
        _say(f"diagnosis: {diagnosis}")
    click.echo(f"rollouts:  {report.files.output}")
    if report.failed:
        click.echo(f"failures:  {report.files.failures}")
    click.echo(f"metrics:   {report.files.aggregate}")
    click.echo(f"manifest:  {report.files.manifest}")
    if report.capture_dir is not None:
        click.echo(f"captures:  {report.capture_dir}")
    if log_dir is not None and any(log.stat().st_size for log in log_dir.glob("*.log")):
        click.echo(f"logs:      {log_dir}")


def _of_this_session(report: RunReport) -> str:
    """Return what a wall time is of where the tables count earlier sessions too."""
    if not report.is_resumed:
        return ""
    ran = "" if report.ran is None else f" ({counted(report.ran, 'rollout')} of {report.planned:,})"
    return f" of this session{ran}"


def print_agents(agents: Sequence[AgentReport]) -> None:
    """Print what each agent achieved, its further key metrics, and what it took."""
    if not agents:
        return
    _table(_REWARDS, [_reward_row(report) for report in agents])
    _table(_METRICS, [row for report in agents for row in _metric_rows(report)])
    _table(_COSTS, [row for report in agents for row in _cost_rows(report)])
    for report in agents:
        for note in report.notes:
            _say(f"note: {report.summary.agent}: {note}")


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    if rows:
        print_table(columns, rows, right=_RIGHT)
        if not sys.stdout.isatty():  # a drawn table ends in an empty line
            click.echo()


def _print_failures(report: RunReport) -> None:
    """Print how many rollouts failed for what reason, with one example of each."""
    if not report.failed:
        return
    classes = ", ".join(f"{count} {name}" for name, count in sorted(report.failed.items()))
    click.echo(f"failed: {classes}")
    examples = failure_examples(report.files.failures, report.failed.keys() - {"cancelled"})
    for name, text in sorted(examples.items()):
        cut = text if len(text) <= _LONGEST_EXAMPLE else f"{text[:_LONGEST_EXAMPLE]}…"
        _say(f"  {name}, rollout {cut}")


def _say(text: str) -> None:
    """Print a text, between words where a terminal would break it anywhere."""
    if not sys.stdout.isatty():
        click.echo(text)
        return
    width = shutil.get_terminal_size().columns
    for line in wrap(text, max(40, width), subsequent_indent="    ") or [""]:
        click.echo(line)


def _reward_row(report: AgentReport) -> list[object]:
    summary, metrics = report.summary, report.agent_metrics
    reward = (_number(metrics.get(_MEAN)), _interval(metrics, _MEAN))
    return [
        summary.agent,
        summary.finished,
        sum(summary.failed.values()),
        " ".join(filter(None, reward)) or None,
    ]


def _cost_rows(report: AgentReport) -> Iterator[list[object]]:
    summary = report.summary
    tokens = [_total(summary.tokens, key) for key in ("tokens_in", "tokens_out")]
    latency = [_seconds(summary.latency_ms.get(key)) for key in ("p50", "p95")]
    if any(cell is not None for cell in (*tokens, *latency)):
        yield [summary.agent, *tokens, *latency]


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
            "model_call_capture_dir": report.capture_dir and str(report.capture_dir),
        },
        **summary_document(report.agents),
    }
