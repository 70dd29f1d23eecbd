"""A run's figures in, the lines of a terminal out. Pure: no clock, no terminal, no network."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import wrap

from nemo_gym.cli.top_columns import (
    Column,
    clock,
    cut,
    flowing,
    milliseconds,
    percent,
    rate,
    seconds,
    size,
    table,
)
from nemo_gym.telemetry.figures import RolloutFigures
from nemo_gym.telemetry.run_view import ProcessView, RolloutView, RunView, ServerView

__all__ = ["Header", "Line", "frame"]

_SWITCH_ON = "loop lag, GC and CPU show with telemetry.metrics.enabled=true"
_MARGIN = 10
"""Columns before what a line of counts says."""
_LEAST_BAR = 7
_LEAST_SUBJECT = 8
_DIAGNOSIS_LINES = 4
"""Most lines of a diagnosis on 80 columns; on fewer it may have more."""
_BLANKS = 3
"""Between counts, tables and diagnosis."""
_ROOM_FOR_BLANKS = 10
"""With fewer lines for all that, the tables take the blank ones, too."""
_NAMED = 3
"""Evaluations that are named, of those that use the same servers."""

_SERVER_COLUMNS: tuple[Column[ServerView], ...] = (
    Column("in flight", 12, 10, 3, lambda s: f"{s.in_flight:,}"),
    Column("req/s", 12, 8, 1, lambda s: rate(s.rate)),
    Column("errors", 12, 8, 2, lambda s: f"{s.errors:,}"),
)
_PROCESS_COLUMNS: tuple[Column[ProcessView], ...] = (
    Column("lag p50", 11, 10, 1, lambda p: milliseconds(p.lag_p50_ms)),
    Column("lag p99", 11, 10, 5, lambda p: milliseconds(p.lag_p99_ms)),
    Column("GC", 9, 6, 3, lambda p: percent(p.gc_share)),
    Column("CPU", 11, 7, 4, lambda p: percent(p.cpu_share)),
    Column("RSS", 12, 10, 2, lambda p: size(p.rss_bytes)),
)


@dataclass(frozen=True, slots=True)
class Header:
    """What the first line says of the run."""

    run_id: str
    kind: str
    age_s: float
    subject: str
    """Output file of an evaluation, or the working directory."""
    silent: tuple[str, ...] = ()
    """Processes that did not answer, so that nothing is known of them."""
    driver: str | None = None
    """Id of the evaluation whose rollouts are shown, where servers are watched."""
    others: tuple[str, ...] = ()
    """Ids of evaluations beside it that use the same servers."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the screen, no wider than the screen."""

    text: str
    style: str = ""
    """A style of rich; empty for none."""


def frame(view: RunView, header: Header, width: int = 80, height: int = 24) -> list[Line]:
    """Return at most `height` lines of at most `width` columns; the diagnosis is always there."""
    counts = [
        Line(_title(header, width), "bold"),
        *_silent_lines(header.silent, width),
        *_sharing_lines(header, width),
        *_rollout_lines(view.rollouts, width),
        *_model_lines(view, width),
    ]
    said = _diagnosis_lines(view, width, height, height - len(counts) - _table_lines(view, width))
    room = height - len(counts) - len(said)
    blanks = _BLANKS if room >= _ROOM_FOR_BLANKS else 0
    for_servers, for_processes = _shared_room(view, room - blanks, width)
    parts = [
        counts,
        _server_lines(view.servers, for_servers, width),
        _process_lines(view, for_processes, width),
    ]
    body = [line for part in parts if part for line in (*part, *[Line("")] * bool(blanks))]
    lines = [*body[: max(0, height - len(said))], *said]
    return [Line(line.text[:width], line.style) for line in lines]


def _table_lines(view: RunView, width: int) -> int:
    """Return how many lines the tables take where there is room for all of them."""
    return len(view.servers) + 1 + _process_count(view, width) + _BLANKS


def _process_count(view: RunView, width: int) -> int:
    """Return how many lines the table of processes takes, or what stands there without metrics."""
    return len(view.processes) + 1 if view.observed else len(wrap(_SWITCH_ON, width))


def _shared_room(view: RunView, room: int, width: int) -> tuple[int, int]:
    """Return how many lines servers and processes get: half each, and what the other leaves."""
    servers = len(view.servers) + 1
    processes = _process_count(view, width)
    half = processes if not view.observed else max(room // 2, room - servers)
    for_processes = max(0, min(processes, half, room))
    return max(0, room - for_processes), for_processes


def _silent_lines(silent: Sequence[str], width: int) -> list[Line]:
    if not silent:
        return []
    said = f"{', '.join(silent)} did not answer: what it does is in none of these figures"
    return [Line(part, "red") for part in wrap(said, width)[:2]]


def _sharing_lines(header: Header, width: int) -> list[Line]:
    if not header.others:
        return []
    whose = header.driver not in (None, header.run_id)
    rollouts = f"rollouts are of {header.driver}; " if whose else ""
    more = f" and {len(header.others) - _NAMED} more" if len(header.others) > _NAMED else ""
    said = (
        f"{rollouts}the same servers are used by {', '.join(header.others[:_NAMED])}{more}: what "
        "servers and model did is of all of them"
    )
    return [Line(part, "yellow") for part in wrap(said, width)]


def _title(header: Header, width: int) -> str:
    start = f"{header.kind} {header.run_id}  {clock(header.age_s)}  "
    subject = header.subject
    room = width - len(start)
    if len(subject) <= room:
        return start + subject
    return start + (f"…{subject[-(room - 1) :]}" if room >= _LEAST_SUBJECT else "")


def _rollout_lines(rollouts: RolloutView | None, width: int) -> list[Line]:
    if rollouts is None:
        return [Line("rollouts  none: no driver in this run"), Line("")]
    counts = rollouts.counts
    ended = counts.finished + counts.failed
    mean = "-" if rollouts.mean_reward is None else f"{rollouts.mean_reward:.3f}"
    parts = [f"{rate(rollouts.rate)}/s", f"eta {clock(rollouts.eta_s)}", f"reward {mean}"]
    start = "rollouts  "
    if counts.planned:
        share = min(1.0, ended / counts.planned)
        parts.insert(0, f"{ended:,}/{counts.planned:,} {share:4.0%}")
        room = width - _MARGIN - len("  ".join(["", *parts]))
        if room >= _LEAST_BAR:
            parts.insert(0, _bar(share, room))
    else:
        parts.insert(0, f"{ended:,} ended")
    return [*map(Line, flowing(start, parts, width)), *map(Line, _counts_lines(counts, width))]


def _counts_lines(counts: RolloutFigures, width: int) -> list[str]:
    """Return the roomiest form that fits on a line; several lines where none does."""
    parts = [
        f"offered {counts.offered:,}",
        f"resident {counts.resident:,}",
        f"active {counts.active:,}",
        f"finished {counts.finished:,}",
        f"failed {counts.failed:,}",
    ]
    margin, plain = " " * _MARGIN, "  ".join(parts)
    before = f" ({counts.finished_before:,} before)" if counts.finished_before else ""
    full = "  ".join([*parts[:3], parts[3] + before, parts[4]])
    forms = (margin + full, full, margin + plain, plain, " ".join(parts))
    fitting = [form for form in forms if len(form) <= width]
    return fitting[:1] or flowing(margin, parts, width)


def _model_lines(view: RunView, width: int) -> list[Line]:
    calls = [
        f"{rate(view.model_rate)} calls/s",
        f"{view.model_in_flight:,} in flight",
        f"p50 {seconds(view.model_p50_s)}",
        f"errors {view.model_errors:,}",
        f"retries {view.model_retries:,}",
    ]
    tokens = [
        f"{rate(view.tokens_in_rate)} in/s",
        f"{rate(view.tokens_out_rate)} out/s",
        f"tools {view.tool_calls:,}",
        f"captured {view.captured:,}",
    ]
    if view.capture_failures:
        tokens.append(f"NOT CAPTURED {view.capture_failures:,}")
    errors = "" if not view.model_errors else "red"
    return [
        *(Line(text, errors) for text in flowing("model     ", calls, width)),
        *map(Line, flowing("tokens    ", tokens, width)),
    ]


def _server_lines(servers: Sequence[ServerView], room: int, width: int) -> list[Line]:
    busiest = sorted(servers, key=lambda s: (-s.in_flight, -(s.rate or 0.0), s.name))
    shown, rest = cut(busiest, room - 1)
    in_flight = f"{sum(s.in_flight for s in rest):,} in flight"
    if not shown:
        # No title stands over nothing.
        return [Line(f"{len(rest)} servers, {in_flight}")][:room] if rest else []
    titles, row = table("server", 40, _SERVER_COLUMNS, width)
    lines = [Line(titles, "dim"), *(Line(row(s.name, s)) for s in shown)]
    if rest:
        lines.append(Line(f"and {len(rest)} more, {in_flight}"))
    return lines


def _process_lines(view: RunView, room: int, width: int) -> list[Line]:
    if not view.observed:
        said = wrap(_SWITCH_ON, width)
        return [Line(part, "yellow") for part in said] if len(said) <= room else []
    slowest = sorted(view.processes, key=lambda p: (-(p.lag_p99_ms or 0.0), p.name))
    shown, rest = cut(slowest, room - 1)
    if not shown:
        worst = max((p.lag_p99_ms or 0.0 for p in rest), default=0.0)
        summed = f"{len(rest)} processes, lag p99 up to {milliseconds(worst)}"
        return [Line(summed)][:room] if rest else []
    titles, row = table("process", 25, _PROCESS_COLUMNS, width)
    lines = [Line(titles, "dim")]
    lines += [Line(row(p.name, p), "yellow" if (p.lag_p99_ms or 0.0) >= 50 else "") for p in shown]
    if rest:
        lines.append(Line(f"and {len(rest)} more processes, their loops quicker"))
    return lines


def _diagnosis_lines(view: RunView, width: int, height: int, free: int) -> list[Line]:
    """Return a few lines, or the `free` ones; of what does not fit in, the last evidence goes.

    Advice that needs more lines than that has them; where the screen ends first, it says so.
    """
    few = min(height // 3, _DIAGNOSIS_LINES * 80 // max(1, width))
    most = max(_DIAGNOSIS_LINES, few, free)
    said = view.diagnosis
    start = (
        f"bottleneck: {said.bottleneck.replace('_', ' ')}. " if said.bottleneck != "none" else ""
    )
    parts: list[str] = []
    for shown in range(len(said.evidence), -1, -1):
        parts = wrap(f"{start}{replace(said, evidence=said.evidence[:shown])}", width)
        if len(parts) <= most:
            break
    if len(parts) > height:
        parts = [*parts[: height - 1], f"{parts[height - 1][: width - 2]} …"]
    return [Line(part, "cyan") for part in parts]


def _bar(share: float, width: int) -> str:
    inner = width - 2
    full = round(share * inner)
    return f"[{'█' * full}{'░' * (inner - full)}]"
