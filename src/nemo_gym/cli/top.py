"""`gym top`: a live view of a run, read from its head server.

Needs no collector and no telemetry: counts show always. Draws on any terminal, best of 80 by 24.
"""

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from shutil import get_terminal_size
from typing import Any, NamedTuple

import click

from nemo_gym.cli.options import FiniteRange, example, json_option
from nemo_gym.cli.output import print_json
from nemo_gym.cli.top_frame import Header, Line, frame
from nemo_gym.errors import TransportError, UserMistake
from nemo_gym.runtime.connect import read_head
from nemo_gym.runtime.registry import LiveRun, live_runs
from nemo_gym.runtime.sharing import evaluations_at
from nemo_gym.telemetry.figures import FigureSnapshot, from_object
from nemo_gym.telemetry.run_view import Quiet, RunView, Since, ended_in_session, view_run

__all__ = ["History", "top"]

_WINDOW_S = 20.0
"""Rates are over this stretch: shorter ones jump, longer ones lag."""
_ENOUGH_S = 5.0
_CALLS = 2
"""Rates of older servers show after so many times the latency of a call, and `_ENOUGH_S`."""
_LEAST_INTERVAL_S = 0.1
_KEY_POLL_S = 0.1
_CANNOT_MOVE = {"", "dumb", "unknown"}
"""Values of `TERM` of terminals on which lines only come one below another."""
_START_S = 20.0
"""Servers take a few seconds to come up, a model on this machine some more."""
_START_POLL_S = 0.2


@click.command(epilog=example("gym top", "gym top --once --json"))
@click.argument("run_id", required=False)
@click.option(
    "--interval",
    type=FiniteRange(_LEAST_INTERVAL_S),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks.",
)
@click.option("--once", is_flag=True, help="Print averages so far and end; so does a pipe.")
@json_option
def top(run_id: str | None, *, interval: float, once: bool, as_json: bool) -> None:
    """Watch a live run: rollouts, servers, event loops, model calls, and what slows it down.

    Without RUN_ID it takes the evaluation started last, else the servers started last; where none
    is alive it waits a little for one that is starting, unless it prints one look.
    """
    if once or as_json or not sys.stdout.isatty():
        asyncio.run(_print_once(_chosen(run_id), interval, as_json=as_json))
    else:
        asyncio.run(_watch(_awaited(run_id), interval))


class _Growth:
    """When a number was last seen to have grown."""

    def __init__(self) -> None:
        self._number, self._seen_at = -1, 0.0

    def quiet_s(self, now: float, number: int) -> float:
        """Return the seconds since then."""
        if number != self._number:
            self._number, self._seen_at = number, now
        return now - self._seen_at


class History:
    """Looks at a run, oldest first; the view counts rates over the last few seconds of them.

    Calls come in bursts, which a short stretch makes too much or too little of. So until the run
    has been watched for long, rates are since it began: for a run that is `whole`, whose servers
    are its own. Servers that are older show none until there is enough to tell. Nor do they fall
    between two bursts, but where the next one is late.
    """

    def __init__(self, window_s: float = _WINDOW_S, *, whole: bool = False) -> None:
        self._window_s = window_s
        self._whole = whole
        self._looks: deque[tuple[float, list[FigureSnapshot]]] = deque()
        self._calls, self._rollouts = _Growth(), _Growth()
        self.rates = ""
        """What the rates of the newest view are over."""

    def add(self, now: float, look: list[FigureSnapshot], others: Sequence[str] = ()) -> RunView:
        """Return the view of the newest look; `others` are runs that use the same servers."""
        self._looks.append((now, look))
        quiet = Quiet(
            self._calls.quiet_s(now, sum(one.model.calls for one in look)),
            self._rollouts.quiet_s(now, sum(ended_in_session(one) for one in look)),
        )
        while len(self._looks) > 2 and self._looks[1][0] <= now - self._window_s:
            self._looks.popleft()
        began, first = self._looks[0]
        earlier, watched_s = first if len(self._looks) > 1 else [], now - began
        if watched_s < self._window_s:
            since: Since = "begin" if self._whole else "nothing"
            early = view_run(look, earlier, since=since, quiet=quiet, others=others)
            self.rates = "since the run began" if self._whole else "in a few seconds"
            if self._whole or watched_s < max(_ENOUGH_S, _CALLS * (early.model_p50_s or 0.0)):
                return early
        self.rates = f"of the last {watched_s:.0f} s"
        return view_run(look, earlier, others=others)


def _awaited(run_id: str | None) -> LiveRun:
    """Return the run to watch; a run is listed only once its servers have come up."""
    if run_id is None and not live_runs():
        click.echo(f"no run is alive yet: waiting {_START_S:.0f} s for one that is starting …")
        deadline = time.monotonic() + _START_S
        while not live_runs() and time.monotonic() < deadline:
            time.sleep(_START_POLL_S)
    return _chosen(run_id)


def _chosen(run_id: str | None) -> LiveRun:
    runs = live_runs()
    if run_id is not None:
        found = [run for run in runs if run.run_id == run_id]
        if not found:
            known = ", ".join(run.run_id for run in runs) or "none"
            raise UserMistake(f"no live run {run_id!r}", mend=f"live runs: {known}")
        return found[0]
    if not runs:
        raise UserMistake("no run is alive", mend="start one with 'gym eval run'")
    return max(runs, key=lambda run: (run.kind == "eval run", run.started_at))


class Look(NamedTuple):
    """One look at a run."""

    figures: list[FigureSnapshot]
    silent: tuple[str, ...]
    """Processes that did not answer."""
    driver: str | None = None
    """The evaluation whose rollouts are shown; None: none uses the servers."""
    others: tuple[str, ...] = ()
    """Evaluations beside it that use the same servers."""


async def _look(run: LiveRun) -> Look | None:
    """Return the figures of the run; None when it is over.

    Servers alone are shown with the rollouts of the evaluation that began to use them last. What
    servers did is of all evaluations that use them; rollouts are of one.
    """
    alive = live_runs()
    if "figures_url" in run.extra and all(other.run_id != run.run_id for other in alive):
        return None  # the driver has ended, though the servers that it used go on
    users = evaluations_at(run, alive)
    shown = next((one for one in users if one.run_id == run.run_id), users[-1] if users else None)
    others = tuple(one.run_id for one in users if one is not shown)
    elsewhere = None if shown is None else shown.extra.get("figures_url")
    try:
        told = await read_head(run.head_url, "/figures")
        figures = from_object(told)
    except (TransportError, ValueError):
        return None
    silent = [*map(str, told.get("silent", ()))]
    if elsewhere not in (None, run.head_url):
        figures = [replace(one, rollouts=None) for one in figures]
        try:
            figures += from_object(await read_head(str(elsewhere), "/figures"))
        except (TransportError, ValueError):
            silent.append("driver")
    return Look(figures, tuple(silent), None if shown is None else shown.run_id, others)


async def _print_once(run: LiveRun, interval: float, *, as_json: bool) -> None:
    earlier: list[FigureSnapshot] = []
    view: RunView | None = None
    look: Look | None = None
    # One second of a run says little: an evaluation is shown from its beginning on. Servers that
    # are older than it are not: theirs are what they do now.
    for wait_s in (0.0,) if _is_whole(run) else (0.0, interval):
        await asyncio.sleep(wait_s)
        now = await _look(run)
        if now is not None:  # else it has ended since, and is shown as it was
            look, figures = now, now.figures
            view = view_run(figures, earlier, others=look.others)
            view = replace(view, rollouts=view_run(figures).rollouts)
            earlier = figures
    if view is None or look is None:
        raise UserMistake(
            f"run {run.run_id} does not answer",
            where=run.head_url,
            mend="'gym env status' says how its servers are; 'gym env stop' ends it",
        )
    if as_json:
        about = {"silent": look.silent, "rollouts_of": look.driver, "others": look.others}
        print_json({"run_id": run.run_id, **asdict(view), **about})
        return
    width = get_terminal_size().columns if sys.stdout.isatty() else 80
    for line in frame(view, _header(run, look), width, height=200):
        click.echo(line.text)


def _is_whole(run: LiveRun) -> bool:
    """Say whether the run's servers are its own, so that all they did was for it."""
    return run.kind == "eval run" and "figures_url" not in run.extra


async def _watch(run: LiveRun, interval: float) -> None:
    history = History(whole=_is_whole(run))
    with _keys() as pressed, _screen() as show:
        while (look := await _look(run)) is not None:
            view = history.add(time.monotonic(), look.figures, look.others)
            size = get_terminal_size()
            lines = frame(view, _header(run, look), size.columns, size.lines - 1)
            show([*lines, Line(f"q quits  rates {history.rates}"[: size.columns], "dim")])
            if await _quit_within(interval, pressed):
                return
    click.echo(f"run {run.run_id} has ended")


@contextmanager
def _screen() -> Iterator[Callable[[list[Line]], None]]:
    """Give what shows lines in place of those before, or below them where that cannot be done."""
    if os.environ.get("TERM", "").lower() in _CANNOT_MOVE:
        yield lambda lines: click.echo("\n".join([*(line.text for line in lines), ""]))
        return
    # rich costs 60 ms to import: only a live view pays for it.
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(), screen=True, auto_refresh=False) as live:
        yield lambda lines: live.update(_drawn(lines), refresh=True)


async def _quit_within(seconds: float, pressed: Callable[[], bytes]) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if b"q" in pressed().lower():
            return True
        await asyncio.sleep(min(_KEY_POLL_S, seconds))
    return False


@contextmanager
def _keys() -> Iterator[Callable[[], bytes]]:
    """Give a function that returns the keys pressed since, without waiting; no echo meanwhile."""
    if not sys.stdin.isatty():
        yield lambda: b""
        return
    import select
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        # Not by way of `sys.stdin`, which would keep to itself what comes behind the first key.
        yield lambda: os.read(keyboard, 64) if select.select([keyboard], [], [], 0)[0] else b""
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _drawn(lines: list[Line]) -> Any:
    from rich.text import Text

    return Text("\n").join([Text(line.text, style=line.style) for line in lines])


def _header(run: LiveRun, look: Look) -> Header:
    age_s = time.time() - run.started_at
    subject = run.output or run.cwd
    return Header(run.run_id, run.kind, age_s, subject, look.silent, look.driver, look.others)
