"""Snapshots of all processes of a run, now and a while ago, in; the figures of a diagnosis out.

Pure. Counts are added up over processes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

from nemo_gym.telemetry.diagnosis import Figures
from nemo_gym.telemetry.figures import FigureSnapshot, RolloutFigures
from nemo_gym.telemetry.live import LOADS
from nemo_gym.telemetry.window import ProcessView, Window, ended_in_session, process_view, share

__all__ = ["figures_between", "figures_of"]

_START_S = 2.0
_NAMED = 3
"""Servers of a process that are named."""
_TURNS = 4
"""How often a loop is waited for in a call, and in a rollout besides, at the least."""
_LEAST_CALLS = 5
"""So many calls in little company are compared; the latency of fewer is chance."""


def figures_of(
    now: Sequence[FigureSnapshot],
    earlier: Sequence[FigureSnapshot] = (),
    others: Sequence[str] = (),
) -> Figures:
    """Return the figures that a diagnosis is made from."""
    window = Window(now, earlier)
    return figures_between(window, window, window, others)


def figures_between(
    settled: Window, window: Window, whole: Window, others: Sequence[str] = ()
) -> Figures:
    """Return what ended from the one window, what processes did from the other.

    Calls that began in little company are rare but at the beginning, so `whole` is all of the run.
    With `others`, runs that use the same servers, what calls took is left out: whose they were is
    not known, so no part of this run's time can be told of them.
    """
    figures = _with_processes(_with_output(_of_rollouts(settled, window), settled), window)
    if others:
        figures = replace(figures, shared_with=_named_runs(others))
    else:
        figures = _with_connections(figures, settled)
        figures = _with_calls(figures, settled, whole)
        figures = _with_errors(figures, settled)
        figures = _with_captures(figures, settled)
    return replace(figures, loop_share=_loop_share(figures, settled))


def _of_rollouts(settled: Window, window: Window) -> Figures:
    waited, ran = settled.total(_waited_s), settled.total(_ran_s)
    driving = [one.rollouts for one, _ in window.pairs if one.rollouts is not None]
    return Figures(
        admission_wait_share=share(waited, waited + ran),
        active=sum(r.active for r in driving) or None,
        rounds=_rounds(driving),
    )


def _with_connections(figures: Figures, settled: Window) -> Figures:
    waits = _by_name(settled, lambda one: one.model.connection_waits_to)
    waited = settled.total(lambda one: one.model.connection_waited_s)
    return replace(
        figures,
        connection_wait_share=share(waited, settled.total(_ran_s)),
        connection_wait_of=max(waits, key=waits.__getitem__, default=None),
    )


def _with_calls(figures: Figures, settled: Window, whole: Window) -> Figures:
    ran = settled.total(_ran_s)
    durations = settled.histogram(lambda one: one.model.duration)
    again = settled.total(lambda one: one.model.retried_s)
    called = settled.total(_called_s)
    elapsed = settled.total(lambda one: (one.rollouts.ran_s or 0.0) if one.rollouts else 0.0)
    rollouts = settled.total(ended_in_session) + (figures.active or 0)
    outside = max(0.0, ran - called - _committing_s(settled))
    local_slots = sum(one.model.local_slots for one, _ in settled.pairs)
    return replace(
        figures,
        provider_p50_s=None if durations is None else durations.quantile(0.5),
        provider_share=share(called, ran) if called else None,
        outside_share=share(outside, ran) if called else None,
        outside_s=outside / rollouts if called and rollouts else None,
        provider_retried_share=share(again, ran) if again else None,
        provider_growth=_growth(whole),
        local_slots=local_slots or None,
        calls_under_way=called / elapsed if elapsed > 0 else None,
    )


def _with_errors(figures: Figures, settled: Window) -> Figures:
    retries = settled.total(lambda one: one.model.retries)
    tries = retries + settled.total(lambda one: one.model.calls)
    wasted = retries + settled.total(lambda one: one.model.errors)
    failed = _by_name(settled, lambda one: one.model.failures)
    kind, most = max(failed.items(), key=itemgetter(1), default=(None, 0.0))
    return replace(
        figures,
        provider_again_share=share(retries, tries) or None,
        provider_errors_share=share(wasted, tries),
        provider_errors_of=kind,
        provider_errors_of_share=share(most, sum(failed.values())) if failed else None,
    )


def _with_output(figures: Figures, settled: Window) -> Figures:
    waited, ran = settled.total(_waited_s), settled.total(_ran_s)
    writing = settled.total(lambda one: one.rollouts.writing_s if one.rollouts else 0.0)
    ended = settled.total(ended_in_session)
    return replace(
        figures,
        output_wait_share=share(writing, waited + ran + writing),
        output_write_s=writing / ended if ended else None,
    )


def _with_captures(figures: Figures, settled: Window) -> Figures:
    ran, called = settled.total(_ran_s), settled.total(_called_s)
    commits = settled.histogram(lambda one: one.capture.commit)
    committing = _committing_s(settled)
    return replace(
        figures,
        commit_share=share(committing, ran or called + committing),
        commit_p99_ms=None if commits is None else commits.quantile(0.99),
    )


def _committing_s(window: Window) -> float:
    """Return how long calls waited for their row to be durable, about, added up."""
    commits = window.histogram(lambda one: one.capture.commit)
    if commits is None or commits.count <= 0:
        return 0.0
    return window.total(lambda one: one.capture.durable) * commits.total / commits.count / 1000


def _loop_share(figures: Figures, settled: Window) -> float | None:
    """Return the part of the time that lag may have taken; None where no time is known.

    Whatever a call or a rollout waits for is noticed a mean lag too late, each time.
    """
    lag_ms, ran = figures.loop_lag_mean_ms, settled.total(_ran_s)
    calls = 0.0
    if figures.shared_with is None:
        calls = settled.total(lambda one: one.model.calls)
        calls += sum(one.model.in_flight for one, _ in settled.pairs)
    rollouts = settled.total(ended_in_session) + (figures.active or 0) if ran else 0
    late_s = (lag_ms or 0.0) / 1000 * _TURNS * (calls + rollouts)
    return None if lag_ms is None else share(late_s, ran or settled.total(_called_s))


def _with_processes(figures: Figures, window: Window) -> Figures:
    settled = [(one, before) for one, before in window.pairs if _settled(one)]
    processes = [process_view(*pair, window.ran_s) for pair in settled]
    late = max(processes, key=_lateness, default=None)
    return replace(
        figures,
        loop_lag_p99_ms=None if late is None else late.lag_p99_ms,
        loop_lag_mean_ms=None if late is None else late.lag_mean_ms,
        loop_held_share=None if late is None else late.held_share,
        loop_lag_of=None if late is None else _named(settled[processes.index(late)][0]),
        gc_share=_largest([p.gc_share for p in processes]),
        cpu_share=_largest([p.cpu_share for p in processes]),
        cpu_wait_share=_largest([p.cpu_wait_share for p in processes]),
        machine_busy_share=_largest([p.machine_busy_share for p in processes]),
        run_machine_share=_largest([p.tree_share for p in processes]),
    )


def _waited_s(one: FigureSnapshot) -> float:
    """Return how long rollouts waited for admission, added up."""
    return one.rollouts.waited_s if one.rollouts else 0.0


def _ran_s(one: FigureSnapshot) -> float:
    """Return how long rollouts ran, added up."""
    return one.rollouts.active_s if one.rollouts else 0.0


def _called_s(one: FigureSnapshot) -> float:
    """Return how long calls to providers took, waits between tries included, added up."""
    return one.model.retried_s + one.model.duration.total + one.model.open_s


def _rounds(driving: Sequence[RolloutFigures]) -> float | None:
    """Return how many times as many rollouts as ran at once there are to run in this session."""
    most = sum(r.most_active for r in driving)
    planned = sum((r.planned or 0) - r.finished_before for r in driving)
    return planned / most if most and planned > 0 else None


def _by_name(
    window: Window, read: Callable[[FigureSnapshot], Mapping[str, float]]
) -> dict[str, float]:
    """Return how much each of several counts grew, those that did."""

    def of(name: str) -> float:
        return window.total(lambda one: read(one).get(name, 0))

    names = dict.fromkeys(name for one, _ in window.pairs for name in read(one))
    return {name: number for name in names if (number := of(name)) > 0}


def _growth(window: Window) -> float | None:
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


def _sums(window: Window, read: Callable[[FigureSnapshot], Sequence[float]]) -> list[float]:
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


def _named_runs(others: Sequence[str]) -> str:
    """Return runs by their ids, few of many."""
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    return f"run{'s' if len(others) > 1 else ''} {', '.join(others[:_NAMED])}{more}"


def _largest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
