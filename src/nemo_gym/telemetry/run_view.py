"""Snapshots of all processes of a run, now and a while ago, in; what a person wants to see, out.

Pure. Counts are added up over processes; rates are over the time between the two.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nemo_gym.telemetry.diagnosis import Diagnosis, diagnose
from nemo_gym.telemetry.figures import FigureSnapshot, RolloutFigures
from nemo_gym.telemetry.run_figures import figures_between, figures_of
from nemo_gym.telemetry.window import (
    NEVER_QUIET,
    ProcessView,
    Quiet,
    Window,
    ended_in_session,
    made_s,
    process_view,
)

__all__ = [
    "ProcessView",
    "Quiet",
    "RolloutView",
    "RunView",
    "ServerView",
    "Since",
    "diagnose_run",
    "ended_in_session",
    "figures_of",
    "view_run",
]

Since = Literal["earlier", "begin", "nothing"]
"""From when on rates are counted: an earlier look, the run's own begin, or not at all, where
neither says enough; rollouts are counted from the begin of their session then."""

_ALL_ENDED = "every rollout has ended: the results are being put together"


@dataclass(frozen=True, slots=True)
class RolloutView:
    """Rollouts of the run."""

    counts: RolloutFigures
    rate: float | None
    """Rollouts ended a second."""
    eta_s: float | None
    """Seconds until all planned ones have ended, at that rate; None: not known."""
    mean_reward: float | None


@dataclass(frozen=True, slots=True)
class ServerView:
    """One server, all its instances together."""

    name: str
    in_flight: int
    rate: float | None
    """Requests begun a second."""
    errors: int


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as a person sees it."""

    rollouts: RolloutView | None
    servers: tuple[ServerView, ...]
    processes: tuple[ProcessView, ...]
    model_calls: int
    model_in_flight: int
    model_errors: int
    model_retries: int
    """Tries beyond the first, of all calls."""
    model_rate: float | None
    model_p50_s: float | None
    tokens_in_rate: float | None
    tokens_out_rate: float | None
    tool_calls: int
    captured: int
    capture_failures: int
    observed: bool
    """Whether telemetry is on in any process."""
    diagnosis: Diagnosis


def view_run(
    now: Sequence[FigureSnapshot],
    earlier: Sequence[FigureSnapshot] = (),
    *,
    since: Since = "earlier",
    quiet: Quiet = NEVER_QUIET,
    others: Sequence[str] = (),
) -> RunView:
    """Return what `now` shows, and what was since `earlier`, or without it since the beginning.

    `quiet` keeps rates since the beginning from falling between two bursts; `others` are ids of
    runs that use the same servers.
    """
    window, whole = Window(now, earlier), Window(now, ())
    # Where calls or rollouts take longer than the window, the whole run says more than nothing.
    settled = window if window.ended else whole
    begin = Window(now, (), quiet)
    pace = {"earlier": window, "begin": begin, "nothing": Window(now, now)}[since]
    durations = settled.histogram(lambda one: one.model.duration)
    return RunView(
        rollouts=_rollouts(pace, settled if since == "earlier" else begin),
        servers=_servers(pace),
        processes=tuple(process_view(*pair, window.ran_s) for pair in window.pairs),
        model_calls=sum(one.model.calls for one in now),
        model_in_flight=sum(one.model.in_flight for one in now),
        model_errors=sum(one.model.errors for one in now),
        model_retries=sum(one.model.retries for one in now),
        model_rate=pace.rate(lambda one: one.model.calls),
        model_p50_s=None if durations is None else durations.quantile(0.5),
        tokens_in_rate=pace.rate(lambda one: one.model.tokens_in),
        tokens_out_rate=pace.rate(lambda one: one.model.tokens_out),
        tool_calls=sum(one.model.tool_calls for one in now),
        captured=sum(one.capture.durable for one in now),
        capture_failures=sum(one.capture.failed for one in now),
        observed=any(one.loop is not None for one in now),
        diagnosis=_ended_all(now) or diagnose(figures_between(settled, window, whole, others)),
    )


def _ended_all(now: Sequence[FigureSnapshot]) -> Diagnosis | None:
    """Return what to say once a run only computes its metrics, None before: nothing is slow."""
    driving = [one.rollouts for one in now if one.rollouts is not None and one.rollouts.planned]
    over = bool(driving) and all(r.finished + r.failed >= (r.planned or 0) for r in driving)
    return Diagnosis("none", (), _ALL_ENDED) if over else None


def diagnose_run(
    snapshots: Sequence[FigureSnapshot],
    earlier: Sequence[FigureSnapshot] = (),
    others: Sequence[str] = (),
) -> Diagnosis:
    """Return what slowed a whole run down, from the figures at its end.

    `earlier` are those of processes that had served other runs before, at its beginning; `others`
    are ids of runs that used the same servers meanwhile.
    """
    return diagnose(figures_of(snapshots, earlier, others))


def _rollouts(window: Window, settled: Window) -> RolloutView | None:
    driving = [one.rollouts for one, _ in window.pairs if one.rollouts is not None]
    if not driving:
        return None
    counts = driving[0]
    rate = _pace(window) or _pace(settled)
    left = None if counts.planned is None else counts.planned - counts.finished - counts.failed
    return RolloutView(
        counts=counts,
        rate=rate,
        eta_s=max(0, left) / rate if rate and left is not None else None,
        mean_reward=counts.reward_total / counts.finished if counts.finished else None,
    )


def _pace(window: Window) -> float | None:
    """Return rollouts ended a second of the run, which servers may be much older than."""
    ran_s = window.total(lambda one: (one.rollouts.ran_s or 0.0) if one.rollouts else 0.0)
    active = sum(one.rollouts.active for one, _ in window.pairs if one.rollouts)
    ended = window.total(ended_in_session)
    seconds = made_s(ran_s, window.quiet.rollouts_s, ended, active)
    return ended / seconds if seconds > 0 else window.rate(ended_in_session)


def _servers(window: Window) -> tuple[ServerView, ...]:
    names = dict.fromkeys(s.name for one, _ in window.pairs for s in one.servers)
    return tuple(_server(window, name) for name in names)


def _server(window: Window, name: str) -> ServerView:
    def requests(one: FigureSnapshot) -> int:
        return sum(s.requests for s in one.servers if s.name == name)

    instances = [s for one, _ in window.pairs for s in one.servers if s.name == name]
    return ServerView(
        name,
        sum(s.in_flight for s in instances),
        window.rate(requests),
        sum(s.errors for s in instances),
    )
