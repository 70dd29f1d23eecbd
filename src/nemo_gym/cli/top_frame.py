"""A run's figures in, the lines of a terminal out. Pure: no clock, no terminal, no network."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import TypeVar

from nemo_gym.telemetry.figures import RolloutFigures
from nemo_gym.telemetry.run_view import ProcessView, RolloutView, RunView, ServerView

__all__ = ["Header", "Line", "frame"]

T = TypeVar("T")

_SWITCH_ON = "loop lag, GC and CPU show with telemetry.metrics.enabled=true"
_MARGIN = 10
"""Columns before what a line of counts says."""
_DIAGNOSIS_LINES = 4
_FIXED_LINES = 14
"""Lines that are there in any case: everything but the rows of the two tables."""


@dataclass(frozen=True, slots=True)
class Header:
    """What the first line says of the run."""

    run_id: str
    kind: str
    age_s: float
    subject: str
    """Output file of an evaluation, or the working directory."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the screen, no wider than the screen."""

    text: str
    style: str = ""
    """A style of rich; empty for none."""


def frame(view: RunView, header: Header, width: int = 80, height: int = 24) -> list[Line]:
    """Return at most `height` lines of at most `width` columns."""
    rows = max(2, height - _FIXED_LINES)
    lines = [
        Line(_title(header, width), "bold"),
        *_rollout_lines(view.rollouts, width),
        *_model_lines(view),
        Line(""),
        *_server_lines(view.servers, max(1, rows // 2)),
        Line(""),
        *_process_lines(view, max(1, rows - rows // 2)),
        Line(""),
        *_diagnosis_lines(view, width),
    ]
    return [Line(line.text[:width], line.style) for line in lines[:height]]


def _title(header: Header, width: int) -> str:
    start = f"{header.kind} {header.run_id}  {_clock(header.age_s)}  "
    subject = header.subject
    room = width - len(start)
    return start + (subject if len(subject) <= room else f"…{subject[-max(1, room - 1) :]}")


def _rollout_lines(rollouts: RolloutView | None, width: int) -> list[Line]:
    if rollouts is None:
        return [Line("rollouts  none: no driver in this run"), Line("")]
    counts = rollouts.counts
    ended = counts.finished + counts.failed
    mean = "-" if rollouts.mean_reward is None else f"{rollouts.mean_reward:.3f}"
    told = f"{_rate(rollouts.rate)}/s  eta {_clock(rollouts.eta_s)}  reward {mean}"
    if counts.planned:
        share = min(1.0, ended / counts.planned)
        told = f"  {ended:,}/{counts.planned:,} {share:4.0%}  {told}"
        first = f"rollouts  {_bar(share, width - _MARGIN - len(told))}{told}"
    else:
        first = f"rollouts  {ended:,} ended  {told}"
    return [Line(first), Line(_counts_line(counts, width))]


def _counts_line(counts: RolloutFigures, width: int) -> str:
    """Return the roomiest form that fits; the narrowest where none does."""
    start = (
        f"offered {counts.offered:,}  resident {counts.resident:,}  active {counts.active:,}  "
        f"finished {counts.finished:,}"
    )
    end = f"  failed {counts.failed:,}"
    margin, plain = " " * _MARGIN, start + end
    before = f" ({counts.finished_before:,} before)" if counts.finished_before else ""
    full = start + before + end
    forms = (margin + full, full, margin + plain, plain, " ".join(plain.split()))
    return next((form for form in forms if len(form) <= width), forms[-1])


def _model_lines(view: RunView) -> list[Line]:
    errors = "" if not view.model_errors else "red"
    return [
        Line(
            f"model     {_rate(view.model_rate)} calls/s  {view.model_in_flight:,} in flight  "
            f"p50 {_seconds(view.model_p50_s)}  "
            f"errors {view.model_errors:,}  retries {view.model_retries:,}",
            errors,
        ),
        Line(
            f"tokens    {_rate(view.tokens_in_rate)} in/s  {_rate(view.tokens_out_rate)} out/s  "
            f"tools {view.tool_calls:,}  captured {view.captured:,}"
            + (f"  NOT CAPTURED {view.capture_failures:,}" if view.capture_failures else "")
        ),
    ]


def _server_lines(servers: Sequence[ServerView], room: int) -> list[Line]:
    busiest = sorted(servers, key=lambda s: (-s.in_flight, -(s.rate or 0.0), s.name))
    shown, rest = _cut(busiest, room)
    lines = [Line(f"{'server':<40}{'in flight':>12}{'req/s':>12}{'errors':>12}", "dim")]
    lines += [
        Line(f"{s.name[:39]:<40}{s.in_flight:>12,}{_rate(s.rate):>12}{s.errors:>12,}")
        for s in shown
    ]
    if rest:
        lines.append(Line(f"and {len(rest)} more, {sum(s.in_flight for s in rest):,} in flight"))
    return lines


def _process_lines(view: RunView, room: int) -> list[Line]:
    if not view.observed:
        return [Line(_SWITCH_ON, "yellow")]
    slowest = sorted(view.processes, key=lambda p: (-(p.lag_p99_ms or 0.0), p.name))
    shown, rest = _cut(slowest, room)
    titles = f"{'process':<25}{'lag p50':>11}{'lag p99':>11}{'GC':>9}{'CPU':>11}{'RSS':>12}"
    lines = [Line(titles, "dim"), *map(_process_line, shown)]
    if rest:
        lines.append(Line(f"and {len(rest)} more processes, their loops quicker"))
    return lines


def _process_line(one: ProcessView) -> Line:
    rss = "-" if one.rss_bytes is None else f"{one.rss_bytes / 2**20:,.0f} MB"
    slow = one.lag_p99_ms is not None and one.lag_p99_ms >= 50
    return Line(
        f"{one.name[:24]:<25}{_ms(one.lag_p50_ms):>11}{_ms(one.lag_p99_ms):>11}"
        f"{_percent(one.gc_share):>9}{_percent(one.cpu_share):>11}{rss:>12}",
        "yellow" if slow else "",
    )


def _diagnosis_lines(view: RunView, width: int) -> list[Line]:
    """Return at most four lines; of what does not fit in, the last evidence goes, not advice."""
    said = view.diagnosis
    start = (
        f"bottleneck: {said.bottleneck.replace('_', ' ')}. " if said.bottleneck != "none" else ""
    )
    parts: list[str] = []
    for shown in range(len(said.evidence), -1, -1):
        parts = wrap(f"{start}{replace(said, evidence=said.evidence[:shown])}", width)
        if len(parts) <= _DIAGNOSIS_LINES:
            break
    return [Line(part, "cyan") for part in parts[:_DIAGNOSIS_LINES]]


def _cut(items: Sequence[T], room: int) -> tuple[Sequence[T], Sequence[T]]:
    """Return what is shown and what is only summed up, which takes a line too."""
    if len(items) <= room:
        return items, ()
    return items[: room - 1], items[room - 1 :]


def _bar(share: float, width: int) -> str:
    inner = max(5, width - 2)
    full = round(share * inner)
    return f"[{'█' * full}{'░' * (inner - full)}]"


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    if 0 < value < 1:
        return f"{value:.2f}"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
