"""What one process has to show for the live view: counts always, readings while telemetry is on.

`snapshot` takes it, `to_json` and `from_json` carry it to the head server and to `gym top`.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from time import monotonic, perf_counter, time
from typing import Any

from nemo_gym.telemetry.exporting import exporting
from nemo_gym.telemetry.lags import NO_LAGS, Lags, lag_of_samples
from nemo_gym.telemetry.live import LOADS, LiveCounts, live_counts
from nemo_gym.telemetry.machine import busy_s, used_by_tree_s, waited_for_core_s
from nemo_gym.telemetry.observer import driver_metrics
from nemo_gym.telemetry.series import HistogramReading

__all__ = [
    "CaptureFigures",
    "FigureSnapshot",
    "LoopFigures",
    "ModelFigures",
    "RolloutFigures",
    "ServerFigures",
    "from_json",
    "from_object",
    "snapshot",
    "to_json",
]

_RECENT_S = 20.0


@dataclass(frozen=True, slots=True)
class RolloutFigures:
    """Rollouts of the driver in this process; what it ran itself, unless it says otherwise."""

    planned: int | None
    """Rollouts of the whole run, those of earlier sessions included; None: not known."""
    offered: int
    resident: int
    active: int
    finished: int
    """With a reward, those of earlier sessions included."""
    failed: int
    reward_total: float
    """Of all that are finished."""
    waited_s: float
    """Seconds waited for admission, all rollouts added up, so far."""
    active_s: float
    """Seconds run, all rollouts added up, those that still run so far."""
    finished_before: int = 0
    """Of those finished, the ones of earlier sessions: no part of a rate."""
    most_active: int = 0
    """Most that ran at once, in this session."""
    ran_s: float | None = None
    """Seconds since this session began; None: not known."""
    writing_s: float = 0.0
    """Seconds waited for rows to be durable, all rollouts added up, so far."""


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """Requests of one server of this process."""

    name: str
    in_flight: int
    requests: int
    errors: int


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """Calls to providers, and the tools that agents called."""

    calls: int
    in_flight: int
    errors: int
    retries: int
    tokens_in: int
    tokens_out: int
    duration: HistogramReading
    """Seconds a call, of those that ended with their first try."""
    tool_calls: int
    tool_errors: int
    connection_waits: int
    connection_waited_s: float
    open_s: float = 0.0
    """Seconds that the calls under way have taken so far, added up."""
    retried_s: float = 0.0
    """Seconds of calls that were tried again, waits between tries included, added up."""
    load_calls: tuple[int, ...] = (0,) * LOADS
    """Calls without error and further tries, by how many were under way: see `LatencyByLoad`."""
    load_seconds: tuple[float, ...] = (0.0,) * LOADS
    """Their seconds, added up."""
    local_slots: int = 0
    """How many calls models that the process runs itself work on at once; 0: it runs none."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """Errors and tries that had to be repeated, by category."""
    connection_waits_to: Mapping[str, float] = field(default_factory=dict)
    """Seconds waited for a connection, by scheme, host and port of the server at its other end."""


@dataclass(frozen=True, slots=True)
class CaptureFigures:
    """Rows of captured model calls."""

    submitted: int
    durable: int
    failed: int
    commit: HistogramReading
    """Milliseconds a commit."""


@dataclass(frozen=True, slots=True)
class LoopFigures:
    """What only an observed process knows."""

    lag_p50_ms: float | None
    """Of the last 20 s; None before the first sample."""
    lag_p99_ms: float | None
    lag_mean_ms: float | None
    """The longest left out, so that a single pause makes none."""
    gc_paused_ms: float
    """Added up since telemetry began."""
    gc_collections: int
    cpu_s: float
    """User and system time of the process since it began."""
    cpu_wait_s: float | None
    """Time that the main thread was ready to run and had no core; None where it is not told."""
    machine_busy_s: float | None
    """Time that the whole machine was busy since telemetry began: a half-busy second is half."""
    rss_bytes: int
    threads: int
    observed_s: float
    """How long the process has been observed."""
    tree_used_s: float | None = None
    """Of all cores, the time that the process and all it started have used; in `machine_busy_s`."""
    lag_held_share: float | None = None
    """Of the samples of the last 20 s, those that found the loop held."""
    lag_recent_ms: tuple[float, ...] = ()
    """The samples of the last 20 s, oldest first."""
    lag_recent_held: tuple[bool, ...] = ()
    """Of each of them, whether it found the loop held."""
    lag_held: int | None = None
    """How many of all samples found the loop held."""
    lag_interval_s: float = 1.0
    """Between two samples, on average."""
    lag: HistogramReading = NO_LAGS
    """Milliseconds of every sample since telemetry began."""


@dataclass(frozen=True, slots=True)
class FigureSnapshot:
    """All figures of one process at one time."""

    process: str
    """What the process is in the run, such as `driver` or `cell-0`."""
    pid: int
    taken_at: float
    """UTC Unix seconds."""
    uptime_s: float
    rollouts: RolloutFigures | None
    """None in a process that drives no rollouts."""
    servers: tuple[ServerFigures, ...]
    model: ModelFigures
    capture: CaptureFigures
    loop: LoopFigures | None
    """None while telemetry metrics are off."""


def snapshot(process: str) -> FigureSnapshot:
    """Return the figures of this process now; it costs well under a millisecond."""
    live = live_counts()
    return FigureSnapshot(
        process=process,
        pid=os.getpid(),
        taken_at=time(),
        uptime_s=monotonic() - live.began_at,
        rollouts=_rollouts(live),
        servers=tuple(
            ServerFigures(name, s.in_flight, s.requests, s.errors)
            for name, s in live.servers.copy().items()
        ),
        model=_model(live),
        capture=CaptureFigures(
            live.rows_submitted,
            live.rows_durable,
            live.rows_failed,
            live.commit_duration.read().trimmed(),
        ),
        loop=_loop(),
    )


def to_json(snapshots: Sequence[FigureSnapshot]) -> bytes:
    """Return what the head server answers to `GET /figures`: `{"processes": […]}`."""
    return json.dumps({"processes": [asdict(one) for one in snapshots]}).encode()


def from_json(body: bytes) -> list[FigureSnapshot]:
    """Return the snapshots that `to_json` wrote; raises `ValueError` for anything else."""
    return from_object(json.loads(body))


def from_object(told: Any) -> list[FigureSnapshot]:
    """Return the snapshots in a decoded answer to `GET /figures`; raises `ValueError`."""
    try:
        return [_snapshot(one) for one in told["processes"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"these are no figures of a run: {error!r}") from None


def _rollouts(live: LiveCounts) -> RolloutFigures | None:
    r, now = live.rollouts, perf_counter()
    if not r.offered and r.planned is None:
        return None
    return RolloutFigures(
        r.planned,
        r.offered,
        r.resident,
        r.active,
        r.finished,
        r.failed,
        r.reward_total,
        r.waiting.total_s(now),
        r.running.total_s(now),
        r.finished_before,
        r.running.most,
        None if r.began_at is None else now - r.began_at,
        r.writing.total_s(now),
    )


def _model(live: LiveCounts) -> ModelFigures:
    return ModelFigures(
        calls=live.model_calls,
        in_flight=live.model_calls_in_flight,
        errors=live.model_errors,
        retries=live.model_retries,
        tokens_in=live.tokens_in,
        tokens_out=live.tokens_out,
        duration=live.model_duration.read().trimmed(),
        tool_calls=live.tool_calls,
        tool_errors=live.tool_errors,
        connection_waits=live.connection_waits,
        connection_waited_s=live.connection_waited_s,
        open_s=live.model_open_s(perf_counter()),
        retried_s=live.model_retried_s,
        load_calls=tuple(live.model_by_load.calls),
        load_seconds=tuple(live.model_by_load.seconds),
        local_slots=sum(live.local_slots.copy().values()),
        failures=dict(live.model_failures),
        connection_waits_to=dict(live.connection_waits_to),
    )


def _loop() -> LoopFigures | None:
    observed = driver_metrics()
    if observed is None:
        return None
    interval_s, samples, held = _recent(observed.lags)
    recent = lag_of_samples(samples, held)
    process = observed.process
    with process.oneshot():
        times, memory, threads = process.cpu_times(), process.memory_info(), process.num_threads()
    return LoopFigures(
        lag_p50_ms=recent.p50_ms,
        lag_p99_ms=recent.p99_ms,
        lag_mean_ms=recent.mean_ms,
        gc_paused_ms=observed.gc.paused_ms,
        gc_collections=sum(observed.gc.collections),
        cpu_s=times.user + times.system,
        cpu_wait_s=waited_for_core_s(),
        machine_busy_s=_machine_busy_s(),
        rss_bytes=memory.rss,
        threads=threads,
        observed_s=monotonic() - observed.began_at,
        tree_used_s=used_by_tree_s(),
        lag_held_share=recent.held_share,
        lag_recent_ms=samples,
        lag_recent_held=held,
        lag_held=observed.lags.held,
        lag_interval_s=interval_s,
        lag=observed.lags.read(),
    )


def _machine_busy_s() -> float | None:
    active, now = exporting(), busy_s()
    if active is None or active.machine_busy_s is None or now is None:
        return None
    return now - active.machine_busy_s


def _recent(lags: Lags) -> tuple[float, tuple[float, ...], tuple[bool, ...]]:
    """Return how often a sample is taken, and those of the last 20 s, or as many as are kept."""
    active = exporting()
    interval_s = _RECENT_S if active is None else active.sample_interval_s
    last = slice(-math.ceil(_RECENT_S / interval_s), None)
    return interval_s, tuple(lags.recent.copy())[last], tuple(lags.recent_held.copy())[last]


def _snapshot(raw: dict[str, Any]) -> FigureSnapshot:
    rollouts, loop = raw["rollouts"], raw["loop"]
    model, capture = raw["model"], raw["capture"]
    return FigureSnapshot(
        **{
            **raw,
            "rollouts": None if rollouts is None else RolloutFigures(**rollouts),
            "servers": tuple(ServerFigures(**one) for one in raw["servers"]),
            "model": _model_of(model),
            "capture": CaptureFigures(**{**capture, "commit": _reading(capture["commit"])}),
            "loop": None if loop is None else _loop_of(loop),
        }
    )


def _model_of(raw: dict[str, Any]) -> ModelFigures:
    told = {**raw, "duration": _reading(raw["duration"])}
    told |= {name: tuple(raw[name]) for name in ("load_calls", "load_seconds") if name in raw}
    return ModelFigures(**told)


def _loop_of(raw: dict[str, Any]) -> LoopFigures:
    told: dict[str, Any] = {"lag": _reading(raw["lag"])} if "lag" in raw else {}
    told |= {name: tuple(raw[name]) for name in ("lag_recent_ms", "lag_recent_held") if name in raw}
    return LoopFigures(**{**raw, **told})


def _reading(raw: dict[str, Any]) -> HistogramReading:
    return HistogramReading(tuple(raw["bounds"]), tuple(raw["counts"]), raw["total"])
