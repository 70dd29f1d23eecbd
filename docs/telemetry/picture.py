"""Draw `gym top` and the same figures over time, from looks at a live run.

    python docs/telemetry/picture.py watch looks.jsonl      # beside a run, until it ends
    python docs/telemetry/picture.py draw looks.jsonl docs/telemetry

A look is one answer of the head server to `GET /figures`, with the run it came from. Draws
`gym-top.svg`, the screen at the middle of the run, and `run.svg`, lines over the whole of it.
"""

import asyncio
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import time
from typing import Any

from rich.console import Console
from rich.text import Text

from nemo_gym.cli.top_frame import Header, frame
from nemo_gym.errors import TransportError
from nemo_gym.runtime.connect import read_head
from nemo_gym.runtime.registry import live_runs
from nemo_gym.telemetry.figures import FigureSnapshot, from_object
from nemo_gym.telemetry.run_view import RunView, view_run

PERIOD_S = 0.5
WINDOW = 20
WIDTH, HEIGHT, MARGIN = 760, 96, 44
COLOURS = ("#2563eb", "#d97706", "#059669", "#dc2626")


async def watch(path: Path) -> None:
    """Write looks at the run that is alive, from its beginning to its end."""
    with path.open("w") as looks:
        while not (runs := live_runs()):
            await asyncio.sleep(PERIOD_S)
        run = runs[-1]
        while True:
            try:
                told = await read_head(run.head_url, "/figures")
            except TransportError:
                return
            about = {"run_id": run.run_id, "kind": run.kind, "age_s": time() - run.started_at}
            looks.write(json.dumps({**about, "subject": "results/mcqa.jsonl", **told}) + "\n")
            await asyncio.sleep(PERIOD_S)


def draw(path: Path, folder: Path) -> None:
    looks = [json.loads(line) for line in path.read_text().splitlines()]
    snapshots = [from_object(look) for look in looks]
    views = [
        view_run(now, snapshots[max(0, index - WINDOW)] if index else [])
        for index, now in enumerate(snapshots)
    ]
    middle = len(looks) * 2 // 3
    folder.joinpath("gym-top.svg").write_text(screen(views[middle], looks[middle]))
    folder.joinpath("run.svg").write_text(
        lines([look["age_s"] for look in looks], snapshots, views)
    )


def screen(view: RunView, look: dict[str, Any]) -> str:
    header = Header(look["run_id"], look["kind"], look["age_s"], look["subject"])
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for line in frame(view, header):
        console.print(Text(line.text, style=line.style))
    # Without its web fonts, which a reader's browser would fetch from elsewhere.
    return re.sub(
        r"@font-face \{.*?\}\s*", "", console.export_svg(title="gym top"), flags=re.DOTALL
    )


Series = tuple[str, Callable[[RunView], float | None]]


def lines(
    ages: Sequence[float], snapshots: Sequence[list[FigureSnapshot]], views: Sequence[RunView]
) -> str:
    panels: list[tuple[str, list[Series]]] = [
        (
            "rollouts",
            [
                (
                    "waiting",
                    lambda v: v.rollouts and v.rollouts.counts.resident - v.rollouts.counts.active,
                ),
                ("active", lambda v: v.rollouts and v.rollouts.counts.active),
            ],
        ),
        ("rollouts ended", [("ended", lambda v: v.rollouts and v.rollouts.counts.finished)]),
        ("model calls in flight", [("in flight", lambda v: v.model_in_flight)]),
        ("provider p50, s", [("p50", lambda v: v.model_p50_s)]),
        (
            "tokens a second",
            [("in", lambda v: v.tokens_in_rate), ("out", lambda v: v.tokens_out_rate)],
        ),
        (
            "event loop lag, ms",
            [
                ("p99", lambda v: largest(p.lag_p99_ms for p in v.processes)),
                ("p50", lambda v: largest(p.lag_p50_ms for p in v.processes)),
            ],
        ),
        ("CPU, cores", [("busiest process", lambda v: largest(p.cpu_share for p in v.processes))]),
    ]
    height = len(panels) * (HEIGHT + 26) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="system-ui, sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for index, (title, series) in enumerate(panels):
        parts.append(panel(title, series, ages, views, index * (HEIGHT + 26) + 20))
    last = ages[-1]
    for share in (0, 0.25, 0.5, 0.75, 1):
        x = MARGIN + share * (WIDTH - MARGIN - 110)
        parts.append(
            f'<text x="{x:.0f}" y="{height - 14}" text-anchor="middle" fill="#555">{share * last:.0f} s</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def largest(values: Any) -> float | None:
    return max((value for value in values if value is not None), default=None)


def panel(
    title: str, series: Sequence[Series], ages: Sequence[float], views: Sequence[RunView], top: int
) -> str:
    read = [(name, [get(view) for view in views]) for name, get in series]
    most = max((v for _, values in read for v in values if v is not None), default=0) or 1
    inner = WIDTH - MARGIN - 110
    parts = [
        f'<text x="{MARGIN}" y="{top - 5}" fill="#111" font-weight="600">{title}</text>',
        f'<rect x="{MARGIN}" y="{top}" width="{inner}" height="{HEIGHT - 12}" fill="#f6f7f9"/>',
        f'<text x="{MARGIN - 6}" y="{top + 10}" text-anchor="end" fill="#555">{most:,.4g}</text>',
        f'<text x="{MARGIN - 6}" y="{top + HEIGHT - 13}" text-anchor="end" fill="#555">0</text>',
    ]
    for number, (name, values) in enumerate(read):
        points = " ".join(
            f"{MARGIN + age / ages[-1] * inner:.1f},{top + (HEIGHT - 12) * (1 - value / most):.1f}"
            for age, value in zip(ages, values, strict=True)
            if value is not None
        )
        colour = COLOURS[number]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.4"/>'
        )
        parts.append(
            f'<text x="{WIDTH - 104}" y="{top + 12 + 14 * number}" fill="{colour}">{name}</text>'
        )
    return "\n".join(parts)


if __name__ == "__main__":
    if sys.argv[1] == "watch":
        asyncio.run(watch(Path(sys.argv[2])))
    else:
        draw(Path(sys.argv[2]), Path(sys.argv[3]))
