"""Snapshots of all processes of a run, now and a while ago, in; what a person wants to see, out.

Pure. Counts are added up over processes; rates are over the time between the two.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, NamedTuple

from nemo_gym.telemetry.diagnosis import Diagnosis, Figures, diagnose
from nemo_gym.telemetry.figures import FigureSnapshot, LoopFigures, RolloutFigures
from nemo_gym.telemetry.lags import Lag, lag_of
from nemo_gym.telemetry.live import LOADS
from nemo_gym.telemetry.series import HistogramReading

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

_START_S = 2.0
_SHORT_S = 5.0
"""A shorter stretch may have too few samples of a loop; longer ones without have none to tell."""
_NAMED = 3
"""Servers of a process that are named."""
_LEAST_CALLS = 5
"""So many calls in little company are compared; the latency of fewer is chance."""
_ALL_ENDED = "every rollout has ended: the results are being put together"


class Quiet(NamedTuple):
    """Seconds since any ended, as far as somebody who looks again and again has seen it."""

    calls_s: float = 0.0
    rollouts_s: float = 0.0


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
class ProcessView:
    """One process; all but its name and pid are None while telemetry is off there."""

    name: str
    pid: int
    lag_p50_ms: float | None
    lag_p99_ms: float | None
    gc_share: float | None
    cpu_share: float | None
    rss_bytes: int | None
    lag_mean_ms: float | None = None
    cpu_wait_share: float | None = None
    """Of the wall time, the part in which it was ready to run and had no core."""
    machine_busy_share: float | None = None
    """Of all cores of its machine, the part that was busy."""
    tree_share: float | None = None
    """Of all cores, the part that it and what it started used."""


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


_NEVER_QUIET = Quiet()


class _Window:
    """Each process now, with what it was before; without an earlier one, since it began."""

    def __init__(
        self,
        now: Sequence[FigureSnapshot],
        earlier: Sequence[FigureSnapshot],
        quiet: Quiet = _NEVER_QUIET,
    ) -> None:
        known = {(one.process, one.pid): one for one in earlier}
        self.pairs = [(one, known.get((one.process, one.pid))) for one in now]
        lasted = [one.rollouts.ran_s for one in now if one.rollouts and one.rollouts.ran_s]
        if earlier or not lasted:
            lasted = [_seconds(*pair) for pair in self.pairs]
        # What a run's servers did, they did since its driver began, and not while they started.
        self.seconds = max(lasted, default=0.0)
        self.quiet = quiet

    @property
    def ended(self) -> bool:
        """Whether any rollout or model call ended in it."""
        return self.total(lambda one: ended_in_session(one) + one.model.calls) > 0

    def total(self, read: Callable[[FigureSnapshot], float]) -> float:
        """Return how much a count grew, over all processes."""
        return sum(read(one) - (read(before) if before else 0) for one, before in self.pairs)

    def rate(self, read: Callable[[FigureSnapshot], float]) -> float | None:
        """Return how much a count grew a second; None before any time has passed."""
        calls, under_way = (self.total(lambda one: one.model.calls), self._calls_under_way())
        seconds = _made_s(self.seconds, self.quiet.calls_s, calls, under_way)
        return self.total(read) / seconds if seconds > 0 else None

    def _calls_under_way(self) -> int:
        return sum(one.model.in_flight for one, _ in self.pairs)

    def histogram(
        self, read: Callable[[FigureSnapshot], HistogramReading]
    ) -> HistogramReading | None:
        """Return what was recorded, over all processes; None without any process."""
        parts = [read(one).since(read(before) if before else None) for one, before in self.pairs]
        return reduce(HistogramReading.plus, parts) if parts else None


def view_run(
    now: Sequence[FigureSnapshot],
    earlier: Sequence[FigureSnapshot] = (),
    *,
    since: Since = "earlier",
    quiet: Quiet = _NEVER_QUIET,
) -> RunView:
    """Return what `now` shows, and what was since `earlier`, or without it since the beginning.

    `quiet` keeps rates since the beginning from falling between two bursts.
    """
    window, whole = _Window(now, earlier), _Window(now, ())
    # Where calls or rollouts take longer than the window, the whole run says more than nothing.
    settled = window if window.ended else whole
    begin = _Window(now, (), quiet)
    pace = {"earlier": window, "begin": begin, "nothing": _Window(now, now)}[since]
    durations = settled.histogram(lambda one: one.model.duration)
    return RunView(
        rollouts=_rollouts(pace, settled if since == "earlier" else begin),
        servers=_servers(pace),
        processes=tuple(_process(one, before) for one, before in window.pairs),
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
        diagnosis=_ended_all(now) or diagnose(_figures(settled, window, whole)),
    )


def _ended_all(now: Sequence[FigureSnapshot]) -> Diagnosis | None:
    """Return what to say once a run only computes its metrics, None before: nothing is slow."""
    driving = [one.rollouts for one in now if one.rollouts is not None and one.rollouts.planned]
    over = bool(driving) and all(r.finished + r.failed >= (r.planned or 0) for r in driving)
    return Diagnosis("none", (), _ALL_ENDED) if over else None


def figures_of(now: Sequence[FigureSnapshot], earlier: Sequence[FigureSnapshot] = ()) -> Figures:
    """Return the figures that a diagnosis is made from."""
    window = _Window(now, earlier)
    return _figures(window, window, window)


def _figures(settled: _Window, window: _Window, whole: _Window) -> Figures:
    """Return what ended from the one window, what processes did from the other.

    Calls that began in little company are rare but at the beginning, so `whole` is all of the run.
    """
    waited = settled.total(lambda one: one.rollouts.waited_s if one.rollouts else 0.0)
    ran = settled.total(lambda one: one.rollouts.active_s if one.rollouts else 0.0)
    calls = settled.total(lambda one: one.model.calls + one.model.retries)
    wasted = settled.total(lambda one: one.model.errors + one.model.retries)
    durations = settled.histogram(lambda one: one.model.duration)
    again = settled.total(lambda one: one.model.retried_s)
    called = again + settled.total(lambda one: one.model.duration.total + one.model.open_s)
    elapsed = settled.total(lambda one: (one.rollouts.ran_s or 0.0) if one.rollouts else 0.0)
    commits = settled.histogram(lambda one: one.capture.commit)
    settling = [(one, before) for one, before in window.pairs if _settled(one)]
    processes = [_process(one, before) for one, before in settling]
    late = max(processes, key=_lateness, default=None)
    driving = [one.rollouts for one, _ in window.pairs if one.rollouts is not None]
    return Figures(
        admission_wait_share=_share(waited, waited + ran),
        active=sum(r.active for r in driving) or None,
        provider_p50_s=None if durations is None else durations.quantile(0.5),
        provider_share=_share(called, ran) if called else None,
        provider_retried_share=_share(again, ran) if again else None,
        provider_growth=_growth(whole),
        provider_again_share=_share(settled.total(lambda one: one.model.retries), calls) or None,
        rounds=_rounds(driving),
        local_slots=sum(one.model.local_slots for one, _ in window.pairs) or None,
        calls_under_way=called / elapsed if elapsed > 0 else None,
        provider_errors_share=_share(wasted, calls),
        loop_lag_p99_ms=None if late is None else late.lag_p99_ms,
        loop_lag_mean_ms=None if late is None else late.lag_mean_ms,
        loop_lag_of=None if late is None else _named(settling[processes.index(late)][0]),
        gc_share=_largest([p.gc_share for p in processes]),
        cpu_share=_largest([p.cpu_share for p in processes]),
        cpu_wait_share=_largest([p.cpu_wait_share for p in processes]),
        machine_busy_share=_largest([p.machine_busy_share for p in processes]),
        run_machine_share=_largest([p.tree_share for p in processes]),
        connection_wait_share=_share(settled.total(lambda one: one.model.connection_waited_s), ran),
        commit_p99_ms=None if commits is None else commits.quantile(0.99),
    )


def _rounds(driving: Sequence[RolloutFigures]) -> float | None:
    """Return how many times as many rollouts as ran at once there are to run in this session."""
    most = sum(r.most_active for r in driving)
    planned = sum((r.planned or 0) - r.finished_before for r in driving)
    return planned / most if most and planned > 0 else None


def _growth(window: _Window) -> float | None:
    """Return latency in the company that most calls began in, by that in less than half of it.

    None where too few calls began in so little.
    """
    calls = _sums(window, lambda one: one.model.load_calls)
    took = _sums(window, lambda one: one.model.load_seconds)
    usual = max(range(LOADS), key=calls.__getitem__)
    few, few_s = sum(calls[: max(0, usual - 1)]), sum(took[: max(0, usual - 1)])
    if few < _LEAST_CALLS or few_s <= 0:
        return None
    return (took[usual] / calls[usual]) / (few_s / few)


def _sums(window: _Window, read: Callable[[FigureSnapshot], Sequence[float]]) -> list[float]:
    def at(load: int) -> float:
        return window.total(lambda one: read(one)[load])

    return [at(load) for load in range(LOADS)]


def _settled(one: FigureSnapshot) -> bool:
    """Say whether a process is past its start, which is full of collections and lag."""
    return one.loop is not None and one.loop.observed_s >= _START_S


def _lateness(one: ProcessView) -> tuple[float, float]:
    """Order processes by how late their loops are, those with a single pause after the others."""
    return one.lag_mean_ms or 0.0, one.lag_p99_ms or 0.0


def _named(one: FigureSnapshot) -> str:
    names = [server.name for server in one.servers]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{one.process} ({', '.join(names[:_NAMED])}{more})" if names else one.process


def diagnose_run(
    snapshots: Sequence[FigureSnapshot], earlier: Sequence[FigureSnapshot] = ()
) -> Diagnosis:
    """Return what slowed a whole run down, from the figures at its end.

    `earlier` are those of processes that had served other runs before, at its beginning.
    """
    return diagnose(figures_of(snapshots, earlier))


def _rollouts(window: _Window, settled: _Window) -> RolloutView | None:
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


def _pace(window: _Window) -> float | None:
    """Return rollouts ended a second of the run, which servers may be much older than."""
    ran_s = window.total(lambda one: (one.rollouts.ran_s or 0.0) if one.rollouts else 0.0)
    active = sum(one.rollouts.active for one, _ in window.pairs if one.rollouts)
    ended = window.total(ended_in_session)
    seconds = _made_s(ran_s, window.quiet.rollouts_s, ended, active)
    return ended / seconds if seconds > 0 else window.rate(ended_in_session)


def _made_s(seconds: float, quiet_s: float, ended: float, under_way: int) -> float:
    """Return the part of `seconds` in which those that ended were made.

    What is under way is made in the time since the last end, until that is as long as the others
    took: what came to an end together would else be less and less, and then all at once more.
    """
    if not ended:
        return seconds
    until = max(0.0, seconds - quiet_s)
    return seconds - min(quiet_s, under_way * until / ended)


def ended_in_session(one: FigureSnapshot) -> int:
    """Return how many rollouts ended in this session, the only ones that make a rate."""
    counts = one.rollouts
    return 0 if counts is None else counts.finished - counts.finished_before + counts.failed


def _servers(window: _Window) -> tuple[ServerView, ...]:
    names = dict.fromkeys(s.name for one, _ in window.pairs for s in one.servers)
    return tuple(_server(window, name) for name in names)


def _server(window: _Window, name: str) -> ServerView:
    def requests(one: FigureSnapshot) -> int:
        return sum(s.requests for s in one.servers if s.name == name)

    instances = [s for one, _ in window.pairs for s in one.servers if s.name == name]
    return ServerView(
        name,
        sum(s.in_flight for s in instances),
        window.rate(requests),
        sum(s.errors for s in instances),
    )


def _process(one: FigureSnapshot, before: FigureSnapshot | None) -> ProcessView:
    loop, earlier = one.loop, before.loop if before else None
    if loop is None:
        return ProcessView(one.process, one.pid, None, None, None, None, None)
    observed_s = loop.observed_s if earlier is None else _seconds(one, before)
    seconds = _seconds(one, before if earlier else None)
    gc_ms = loop.gc_paused_ms - (earlier.gc_paused_ms if earlier else 0.0)
    cpu_s = loop.cpu_s - (earlier.cpu_s if earlier else 0.0)
    waited_s = (loop.cpu_wait_s or 0.0) - ((earlier.cpu_wait_s or 0.0) if earlier else 0.0)
    busy_s = (loop.machine_busy_s or 0.0) - ((earlier.machine_busy_s or 0.0) if earlier else 0.0)
    used_s = (loop.tree_used_s or 0.0) - ((earlier.tree_used_s or 0.0) if earlier else 0.0)
    lag = _lag(loop, earlier, seconds)
    return ProcessView(
        name=one.process,
        pid=one.pid,
        lag_p50_ms=lag.p50_ms,
        lag_p99_ms=lag.p99_ms,
        gc_share=_share(gc_ms / 1000, observed_s),
        cpu_share=cpu_s / seconds if seconds > 0 else None,
        rss_bytes=loop.rss_bytes,
        lag_mean_ms=lag.mean_ms,
        cpu_wait_share=None if loop.cpu_wait_s is None else _share(waited_s, seconds),
        machine_busy_share=None if loop.machine_busy_s is None else _share(busy_s, observed_s),
        tree_share=None if loop.tree_used_s is None else _share(used_s, seconds),
    )


def _lag(loop: LoopFigures, earlier: LoopFigures | None, seconds: float) -> Lag:
    """Return the lag of the stretch: what a process did before it is no part of it."""
    sampled = loop.lag.since(earlier.lag if earlier else None)
    if sampled.count > 1 or (earlier is not None and seconds >= _SHORT_S):
        return lag_of(sampled)
    return Lag(loop.lag_p50_ms, loop.lag_p99_ms, loop.lag_mean_ms)


def _seconds(one: FigureSnapshot, before: FigureSnapshot | None) -> float:
    return one.uptime_s if before is None else one.taken_at - before.taken_at


def _share(part: float, whole: float) -> float | None:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else None


def _largest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
