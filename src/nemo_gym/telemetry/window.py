"""A stretch of a run: each process now and a while ago, in; what grew in between, out. Pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from nemo_gym.telemetry.figures import FigureSnapshot, LoopFigures
from nemo_gym.telemetry.lags import Lag, lag_of, lag_of_samples
from nemo_gym.telemetry.series import HistogramReading

__all__ = [
    "NEVER_QUIET",
    "ProcessView",
    "Quiet",
    "Window",
    "ended_in_session",
    "made_s",
    "process_view",
    "share",
]

_START_S = 5.0
"""Servers that are so much older than a run are no part of it."""
_SHORT_S = 5.0
"""A shorter stretch between two looks has too few samples of a loop to tell a mean from a pause."""


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
    held_share: float | None = None
    """Of the wall time, the part in which something held its loop."""
    cpu_wait_share: float | None = None
    """Of the wall time, the part in which it was ready to run and had no core."""
    machine_busy_share: float | None = None
    """Of all cores of its machine, the part that was busy."""
    tree_share: float | None = None
    """Of all cores, the part that it and what it started used."""


class Quiet(NamedTuple):
    """Seconds since any ended, as far as somebody who looks again and again has seen it."""

    calls_s: float = 0.0
    rollouts_s: float = 0.0


NEVER_QUIET = Quiet()


class Window:
    """Each process now, with what it was before; without an earlier one, since it began."""

    def __init__(
        self,
        now: Sequence[FigureSnapshot],
        earlier: Sequence[FigureSnapshot],
        quiet: Quiet = NEVER_QUIET,
    ) -> None:
        known = {(one.process, one.pid): one for one in earlier}
        self.pairs = [(one, known.get((one.process, one.pid))) for one in now]
        lasted = [one.rollouts.ran_s for one in now if one.rollouts and one.rollouts.ran_s]
        self.ran_s = max(lasted, default=None)
        """How old the run is; None where none is driven."""
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
        seconds = made_s(self.seconds, self.quiet.calls_s, calls, under_way)
        return self.total(read) / seconds if seconds > 0 else None

    def _calls_under_way(self) -> int:
        return sum(one.model.in_flight for one, _ in self.pairs)

    def histogram(
        self, read: Callable[[FigureSnapshot], HistogramReading]
    ) -> HistogramReading | None:
        """Return what was recorded, over all processes; None without any process."""
        parts = [read(one).since(read(before) if before else None) for one, before in self.pairs]
        return reduce(HistogramReading.plus, parts) if parts else None


def made_s(seconds: float, quiet_s: float, ended: float, under_way: int) -> float:
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


def process_view(
    one: FigureSnapshot, before: FigureSnapshot | None, ran_s: float | None = None
) -> ProcessView:
    """Return what one process did between two looks; since it began, where there is no first.

    Lag is of the run alone, which is `ran_s` old, where one is driven: servers may be older.
    """
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
    lag = _lag(loop, earlier, seconds, ran_s)
    return ProcessView(
        name=one.process,
        pid=one.pid,
        lag_p50_ms=lag.p50_ms,
        lag_p99_ms=lag.p99_ms,
        gc_share=share(gc_ms / 1000, observed_s),
        cpu_share=cpu_s / seconds if seconds > 0 else None,
        rss_bytes=loop.rss_bytes,
        lag_mean_ms=lag.mean_ms,
        held_share=lag.held_share,
        cpu_wait_share=None if loop.cpu_wait_s is None else share(waited_s, seconds),
        machine_busy_share=None if loop.machine_busy_s is None else share(busy_s, observed_s),
        tree_share=None if loop.tree_used_s is None else share(used_s, seconds),
    )


def _lag(
    loop: LoopFigures, earlier: LoopFigures | None, seconds: float, ran_s: float | None
) -> Lag:
    """Return the lag of the stretch, or of the last 20 s where it is too short to have one."""
    sampled = loop.lag.since(earlier.lag if earlier else None)
    older = ran_s is not None and loop.observed_s > ran_s + _START_S
    if seconds < _SHORT_S if earlier else (older or sampled.count < 2):
        before = len(loop.lag_recent_ms)
        before -= before if ran_s is None else math.ceil(ran_s / loop.lag_interval_s)
        if before > 0:
            return lag_of_samples(loop.lag_recent_ms[before:], loop.lag_recent_held[before:])
        return Lag(loop.lag_p50_ms, loop.lag_p99_ms, loop.lag_mean_ms, loop.lag_held_share)
    held = loop.lag_held
    if held is not None and earlier is not None:
        held -= earlier.lag_held or 0
    return lag_of(sampled, held)


def _seconds(one: FigureSnapshot, before: FigureSnapshot | None) -> float:
    return one.uptime_s if before is None else one.taken_at - before.taken_at


def share(part: float, whole: float) -> float | None:
    """Return `part` of `whole`, from 0 to 1; None of nothing."""
    return min(1.0, max(0.0, part / whole)) if whole > 0 else None
