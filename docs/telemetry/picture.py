"""Draw `gym top` and the same figures over time, from looks at a live run.

    python docs/telemetry/picture.py watch looks.jsonl      # beside a run, until it ends
    python docs/telemetry/picture.py draw looks.jsonl docs/telemetry

A look is one answer of the head server to `GET /figures`, with the run it came from. Draws
`gym-top.svg`, the screen at two thirds of the run, and `run.svg`, lines over the whole of it.
"""

import asyncio
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import sleep, time
from typing import Any

from rich.console import Console
from rich.text import Text

from nemo_gym.cli.top_frame import Header, frame
from nemo_gym.errors import TransportError
from nemo_gym.runtime.connect import read_head
from nemo_gym.runtime.registry import live_runs
from nemo_gym.telemetry.figures import from_object
from nemo_gym.telemetry.run_view import ProcessView, RolloutView, RunView, view_run

PERIOD_S = 0.5
WINDOW = 20
"""Looks over which rates are counted."""
WIDTH, LEFT, RIGHT = 760, 58, 116
STEP, PLOT = 112, 74
"""Height of a panel with its title, and of the plot in it."""
CELL = 12.2
"""Width of a character on the screen that rich draws."""
COLOURS = ("#2563eb", "#c2570c", "#047857", "#b91c1c")
INK, FAINT, GRID = "#1f2937", "#6b7280", "#e5e7eb"

Read = Callable[[RunView], float | None]


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot: a title, and lines by name."""

    title: str
    lines: tuple[tuple[str, Read], ...]


def watch(path: Path) -> None:
    """Write looks at the run that is alive, from its beginning to its end."""
    while not (runs := live_runs()):
        sleep(PERIOD_S)
    run = runs[-1]
    subject = os.path.relpath(run.output or run.cwd, run.cwd)
    with path.open("w") as looks:
        while True:
            try:
                told = asyncio.run(read_head(run.head_url, "/figures"))
            except TransportError:
                return
            about = {"run_id": run.run_id, "kind": run.kind, "age_s": time() - run.started_at}
            looks.write(json.dumps({**about, "subject": subject, **told}) + "\n")
            sleep(PERIOD_S)


def draw(path: Path, folder: Path) -> None:
    """Draw both pictures into `folder`."""
    looks = [json.loads(line) for line in path.read_text().splitlines()]
    snapshots = [from_object(look) for look in looks]
    views = [
        view_run(
            now,
            snapshots[max(0, index - WINDOW)] if index else [],
            since="begin" if index < WINDOW else "earlier",
        )
        for index, now in enumerate(snapshots)
    ]
    shown = len(looks) * 2 // 3
    folder.joinpath("gym-top.svg").write_text(screen(views[shown], looks[shown]))
    # The first look has nothing before it to count rates from.
    ages = [look["age_s"] for look in looks]
    folder.joinpath("run.svg").write_text(plots(ages[1:], views[1:]))


def screen(view: RunView, look: dict[str, Any]) -> str:
    """Return the screen of `gym top` at 80 columns as an SVG."""
    header = Header(look["run_id"], look["kind"], look["age_s"], look["subject"])
    with Path(os.devnull).open("w") as nowhere:
        console = Console(width=80, record=True, file=nowhere, legacy_windows=False)
        for line in frame(view, header):
            console.print(Text(line.text, style=line.style))
        svg = console.export_svg(title="gym top")
    # Without its web fonts, which a reader's browser would fetch from elsewhere.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return re.sub(r'x="0" y="([\d.]+)" textLength="([\d.]+)" ([^>]*)>((?:&#160;)+)', moved, svg)


def moved(found: re.Match[str]) -> str:
    """Return a text that begins where its first letter is: some viewers drop leading spaces."""
    y, length, more, spaces = found.groups()
    margin = spaces.count(";") * CELL
    return f'x="{margin:.1f}" y="{y}" textLength="{float(length) - margin:.1f}" {more}>'


def panels(views: Sequence[RunView]) -> list[Panel]:
    """Return what is drawn, from top to bottom."""
    names = sorted({process.name for view in views for process in view.processes})
    return [
        Panel("rollouts under way", (("active", of(active)), ("waiting", of(waiting)))),
        Panel("rollouts ended", (("ended", of(ended)),)),
        Panel("model calls in flight", (("in flight", lambda view: view.model_in_flight),)),
        Panel("provider, p50 in s", (("p50", lambda view: view.model_p50_s),)),
        Panel("model calls tried again", (("retries", lambda view: view.model_retries),)),
        Panel(
            "tokens a second",
            (("in", lambda view: view.tokens_in_rate), ("out", lambda view: view.tokens_out_rate)),
        ),
        Panel(
            "event loop lag, p99 in ms",
            tuple((name, process(name, lambda one: one.lag_p99_ms)) for name in names),
        ),
        Panel(
            "CPU, cores", tuple((name, process(name, lambda one: one.cpu_share)) for name in names)
        ),
    ]


def of(read: Callable[[RolloutView], float | None]) -> Read:
    """Return a reading of the rollouts, None while there are none."""
    return lambda view: None if view.rollouts is None else read(view.rollouts)


def active(rollouts: RolloutView) -> float:
    """Return how many run."""
    return rollouts.counts.active


def waiting(rollouts: RolloutView) -> float:
    """Return how many wait for admission, or for their row to be written."""
    return rollouts.counts.resident - rollouts.counts.active


def ended(rollouts: RolloutView) -> float:
    """Return how many have ended."""
    return rollouts.counts.finished + rollouts.counts.failed


def process(name: str, read: Callable[[ProcessView], float | None]) -> Read:
    """Return a reading of the process of that name."""
    return lambda view: next((read(one) for one in view.processes if one.name == name), None)


def plots(ages: Sequence[float], views: Sequence[RunView]) -> str:
    """Return every panel, one below the other, as an SVG."""
    drawn = panels(views)
    height = len(drawn) * STEP + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="system-ui, DejaVu Sans, sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
    ]
    for index, one in enumerate(drawn):
        parts += panel(one, ages, views, index * STEP + 30)
    for second in ticks(ages[-1], 8):
        place = f'x="{across(second, ages):.1f}" y="{height - 18}"'
        parts.append(f'<text {place} text-anchor="middle" fill="{FAINT}">{second:g} s</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def panel(one: Panel, ages: Sequence[float], views: Sequence[RunView], top: int) -> Iterable[str]:
    """Yield the parts of one panel whose plot begins at `top`."""
    read = [(name, [get(view) for view in views]) for name, get in one.lines]
    most = max((v for _, values in read for v in values if v is not None), default=0) or 1
    marks = ticks(most, 2)
    most = max(most, marks[-1])
    right = WIDTH - RIGHT
    yield f'<text x="{LEFT}" y="{top - 8}" fill="{INK}" font-weight="600">{one.title}</text>'
    for mark in marks:
        y = top + PLOT * (1 - mark / most)
        yield f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GRID}"/>'
        yield (
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="{FAINT}">'
            f"{mark:,g}</text>"
        )
    for number, (name, values) in enumerate(read):
        points = " ".join(
            f"{across(age, ages):.1f},{top + PLOT * (1 - value / most):.1f}"
            for age, value in zip(ages, values, strict=True)
            if value is not None
        )
        colour = COLOURS[number % len(COLOURS)]
        yield (
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6" '
            'stroke-linejoin="round"/>'
        )
        y = top + 10 + 16 * number
        yield f'<text x="{right + 12}" y="{y}" fill="{colour}">{name}</text>'


def across(age: float, ages: Sequence[float]) -> float:
    """Return where along the plot a moment lies."""
    return LEFT + age / ages[-1] * (WIDTH - LEFT - RIGHT)


def ticks(most: float, wanted: int) -> list[float]:
    """Return round numbers from zero to `most`, or just above it, about `wanted` steps of them."""
    rough = most / wanted
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    return [round(step * number, 10) for number in range(math.floor(most / step) + 1)]


if __name__ == "__main__":
    if sys.argv[1] == "watch":
        watch(Path(sys.argv[2]))
    else:
        draw(Path(sys.argv[2]), Path(sys.argv[3]))
