"""What slows a run down, in words: plain figures in, the bottleneck with its evidence out. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from nemo_gym.telemetry.provider_errors import OTHER_ERROR, PROVIDER_ERRORS

__all__ = ["UNMEASURED", "Bottleneck", "Diagnosis", "Figures", "diagnose"]

UNMEASURED = "loop lag, GC and CPU were not measured: telemetry.metrics.enabled=true shows them"
"""What a diagnosis without these figures cannot have seen."""

Bottleneck = Literal[
    "provider_errors",
    "gc",
    "machine",
    "cpu",
    "event_loop",
    "connections",
    "disk",
    "local_model",
    "outside_calls",
    "admission",
    "provider",
    "shared_servers",
    "none",
]


@dataclass(frozen=True, slots=True)
class Figures:
    """A stretch of a run in numbers; None is not known, and decides nothing."""

    admission_wait_share: float | None = None
    """Of the time between being offered and ending, the part spent waiting for admission."""
    active: float | None = None
    """Rollouts running, on average or at the end."""
    provider_p50_s: float | None = None
    """Of calls that ended with their first try: no wait before another one is in it."""
    provider_share: float | None = None
    """Of the time that rollouts ran, the part during which a call to a provider was open."""
    outside_share: float | None = None
    """Of that time, the part in which neither a call was open nor its row on the way to disk."""
    outside_s: float | None = None
    """That part of a rollout, in seconds."""
    provider_retried_share: float | None = None
    """Of that time, the part in calls that were tried again, waits between tries included."""
    provider_growth: float | None = None
    """How many times as long calls took in the company usual there as in less than half of it."""
    provider_again_share: float | None = None
    """Of the tries, the part that had to be repeated: refused for load, broken, or not answered."""
    rounds: float | None = None
    """How many times as many rollouts as ran at once there are to run; 1: all ran at once."""
    local_slots: float | None = None
    """How many calls the models work on at once that the run itself runs; None: it runs none."""
    calls_under_way: float | None = None
    """Calls to providers under way, on average."""
    provider_errors_share: float | None = None
    """Of the tries at providers, the part that ended in an error or had to be repeated."""
    provider_errors_of: str | None = None
    """Category that most of these are of."""
    provider_errors_of_share: float | None = None
    """Of these, the part that is of that category."""
    loop_lag_p99_ms: float | None = None
    """Of the process whose loop is late most."""
    loop_lag_mean_ms: float | None = None
    """Of the same process, the longest left out: one long pause makes a p99, but no mean."""
    loop_share: float | None = None
    """Of the time that rollouts ran, or else calls took, the part that this lag may have taken."""
    loop_held_share: float | None = None
    """Of the wall time, the part in which something held the loop of the same process."""
    loop_lag_of: str | None = None
    """That process, with the servers in it."""
    gc_share: float | None = None
    """Of the wall time, the part spent in garbage collection, where it is largest."""
    cpu_share: float | None = None
    """Cores in use by the process that uses most: 1.0 is one core full."""
    cpu_wait_share: float | None = None
    """Of the wall time, the part in which a process was ready to run and had no core."""
    machine_busy_share: float | None = None
    """Of all cores of the machine, the part that was busy, whoever used them."""
    run_machine_share: float | None = None
    """Of all cores of the machine, the part that the run used, a model it started included."""
    connection_wait_share: float | None = None
    """Of the time that rollouts ran, the part spent waiting for a connection."""
    connection_wait_of: str | None = None
    """Scheme, host and port of the server that most of this was waited for."""
    commit_p99_ms: float | None = None
    """Until a captured call is durable."""
    commit_share: float | None = None
    """Of the time that rollouts ran, or else calls took, the part in which calls waited for it."""
    output_wait_share: float | None = None
    """Of the time from being offered to being durable, the part that finished rollouts waited."""
    output_write_s: float | None = None
    """Until the row of a finished rollout is durable, on average."""
    shared_with: str | None = None
    """Runs that use the same servers: calls, which are of all of them, are not in these figures."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The one thing to change first."""

    bottleneck: Bottleneck
    evidence: tuple[str, ...]
    advice: str

    def __str__(self) -> str:
        return f"{'; '.join(self.evidence)}: {self.advice}" if self.evidence else self.advice


@dataclass(frozen=True, slots=True)
class _Rule:
    bottleneck: Bottleneck
    holds: Callable[[Figures], bool]
    shown: tuple[str, ...]
    """Figures that are the evidence, the deciding one first."""
    advice: str


def diagnose(figures: Figures) -> Diagnosis:
    """Return the first rule that holds, the ones that waste work before the ones that wait."""
    others = figures.shared_with
    for rule in _RULES:
        if rule.holds(figures) and not (others and rule.bottleneck in _WAITING_FOR_OTHERS):
            advice = f"{rule.advice}{_besides(figures, rule)}{_also(others)}"
            return Diagnosis(rule.bottleneck, _evidence(figures, rule.shown), advice)
    if others:
        own = tuple(name for name in _OWN if _tells(figures, name))
        advice = f"no more is told of this run: what its servers did is also of {others}"
        return Diagnosis("shared_servers", _evidence(figures, own), advice)
    shown = tuple(name for name in _PHRASES if name not in _UNTOLD and _tells(figures, name))
    unseen = figures.loop_lag_p99_ms is None and figures.cpu_share is None
    advice = "nothing stands out in the counts" if unseen else "nothing stands out"
    return Diagnosis("none", _evidence(figures, shown), advice)


def _tells(figures: Figures, name: str) -> bool:
    """Say whether a figure is worth a word where nothing stands out: a share of nothing is not."""
    value = getattr(figures, name)
    return not name.endswith("_share") or (value is not None and value >= _LEAST_SHARE)


def _least(name: str, limit: float) -> Callable[[Figures], bool]:
    def holds(figures: Figures) -> bool:
        value = getattr(figures, name)
        return value is not None and value >= limit

    return holds


def _both(
    first: Callable[[Figures], bool], second: Callable[[Figures], bool]
) -> Callable[[Figures], bool]:
    return lambda figures: first(figures) and second(figures)


def _evidence(figures: Figures, names: tuple[str, ...]) -> tuple[str, ...]:
    known = ((name, getattr(figures, name)) for name in names if not _says_nothing(figures, name))
    said = [(name, _PHRASES[name](value)) for name, value in known if value is not None]
    server = figures.connection_wait_of
    more = {
        "loop_lag_p99_ms": _where(figures),
        "provider_errors_share": _mostly(figures),
        "connection_wait_share": f", mostly to {server}" if server else "",
    }
    return tuple(f"{told}{more.get(name, '')}" for name, told in said)


def _says_nothing(figures: Figures, name: str) -> bool:
    """Say whether a figure would speak against the advice beside it."""
    value, least = getattr(figures, name), _FULL.get(name)
    return value is not None and least is not None and value < least


def _where(figures: Figures) -> str:
    if not _late(figures):
        return ""
    held = figures.loop_held_share
    where = f" in {figures.loop_lag_of}" if figures.loop_lag_of else ""
    return where if held is None else f"{where}, held {_percent(held)} of the time"


def _besides(figures: Figures, rule: _Rule) -> str:
    """Return the end of an advice that shows a late loop as evidence and is not about it."""
    held, busy = figures.loop_held_share, figures.machine_busy_share
    if rule.bottleneck not in _WAITING_FOR_OTHERS or not _late(figures):
        return ""
    if held is not None and held < _OFTEN:
        # A pause or two; or a loop that nothing holds waits for a core.
        if busy is None or busy < _FULL_MACHINE:
            return ""
        return f"; besides, all cores of the machine are {_percent(busy)} busy"
    of = figures.loop_lag_of or "one process"
    return f"; besides, something blocks the event loop of {of}, which more concurrency waits for"


def _also(others: str | None) -> str:
    return f"; the same servers are used by {others}" if others else ""


def _late(figures: Figures) -> bool:
    return _least("loop_lag_p99_ms", _LATE_MS)(figures)


def _mostly(figures: Figures) -> str:
    """Return the end of a sentence that names what most errors are, where that is known."""
    kind, share = figures.provider_errors_of, figures.provider_errors_of_share
    if kind is None or share is None or not figures.provider_errors_share:
        return ""
    part = "all" if share >= 0.995 else _percent(share)
    return f", {part} of them {PROVIDER_ERRORS.get(kind, OTHER_ERROR).called}"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _times(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"


_LEAST_SHARE = 0.01
_LATE_MS = 50
_LARGE = 0.25
"""Part of the time that is worth a word, where nothing else takes more."""
_HELD = 0.7
"""A loop that is held for so much of the time has no room for as much again, whoever else waits."""
_OFTEN = 0.05
"""Less than that of the time is a pause or two."""
_FULL_MACHINE = 0.9
_FULL = {"provider_again_share": 0.02, "provider_growth": 1.8}
"""From where on a figure says that a provider is full; below, it is no evidence of that."""
_WAITING_FOR_OTHERS = ("admission", "provider", "outside_calls")
"""Bottlenecks that a late loop is no part of, and makes worse."""
_PHRASES: dict[str, Callable[[float], str]] = {
    "admission_wait_share": lambda v: f"rollouts waited {_percent(v)} of the time for admission",
    "active": lambda v: f"{v:.0f} active",
    "provider_p50_s": lambda v: f"provider p50 {_seconds(v)}",
    "provider_share": lambda v: f"the provider took {_percent(v)} of the running time",
    "outside_share": lambda v: (
        f"agents, tools and verifiers took {_percent(v)} of a rollout's time outside model calls"
    ),
    "outside_s": lambda v: f"{_seconds(v)} of each rollout",
    "provider_growth": lambda v: f"its calls take {_times(v)} times as long in company",
    "provider_again_share": lambda v: f"{_percent(v)} of the tries had to be repeated",
    "rounds": lambda v: f"{_times(v)} times as many rollouts as ran at once",
    "local_slots": lambda v: f"the model that this run runs works on {v:.0f} calls at once",
    "calls_under_way": lambda v: f"{v:.1f} calls under way",
    "provider_retried_share": lambda v: (
        f"{_percent(v)} in calls tried again, waits between tries included"
    ),
    "provider_errors_share": lambda v: f"{_percent(v)} of the tries at the provider failed",
    "loop_lag_p99_ms": lambda v: f"loop lag p99 {v:.0f} ms",
    "loop_lag_mean_ms": lambda v: f"loop lag mean {v:.0f} ms",
    "gc_share": lambda v: f"garbage collection {_percent(v)} of the time",
    "cpu_share": lambda v: f"CPU {_percent(v)} of a core",
    "cpu_wait_share": lambda v: f"{_percent(v)} of the time spent waiting for a core",
    "machine_busy_share": lambda v: f"all cores of the machine {_percent(v)} busy",
    "run_machine_share": lambda v: f"this run used {_percent(v)} of all cores",
    "connection_wait_share": lambda v: f"{_percent(v)} of the time spent waiting for a connection",
    "commit_share": lambda v: f"calls waited {_percent(v)} of the time to be captured",
    "commit_p99_ms": lambda v: f"commit p99 {v:.0f} ms",
    "output_wait_share": lambda v: f"rollouts waited {_percent(v)} of the time to be written",
    "output_write_s": lambda v: f"each took {_seconds(v)}",
}
_OWN = ("admission_wait_share", "output_wait_share", "loop_lag_p99_ms", "active")
"""Evidence that no other run has a part in, or that holds for all that use a server."""
_UNTOLD = ("loop_lag_mean_ms", "output_write_s", "outside_share", "outside_s")
"""Figures that say something only beside another one."""
_FULL_CORE = _least("cpu_share", 0.85)


def _starved(figures: Figures) -> bool:
    # Waiting for a core slows a run down only where the loop has no time left to catch up.
    used, waited = figures.cpu_share, figures.cpu_wait_share
    return used is not None and waited is not None and waited >= 0.25 and used + waited >= 0.85


def _filled(figures: Figures) -> bool:
    # Cores that others keep busy matter only to a run that wants them, which `_starved` finds.
    busy, own = figures.machine_busy_share, figures.run_machine_share
    return busy is not None and own is not None and busy >= 0.95 and own >= 0.5


def _slow_loop(figures: Figures) -> bool:
    late = _late(figures) and _least("loop_lag_mean_ms", 10)(figures)
    held = figures.loop_held_share
    if held is not None and held < _OFTEN:
        return False
    if late and _least("loop_held_share", _HELD)(figures):
        return True
    lost = figures.loop_share
    if not late or lost is None:
        return late
    # About half of what is late is late within calls, and no time of the provider.
    return lost >= _LARGE and lost >= (figures.provider_share or 0.0) - lost / 2


def _slow_capture(figures: Figures) -> bool:
    part = figures.commit_share
    if part is None or not _least("commit_p99_ms", 50)(figures):
        return False
    return part >= _LARGE and part >= (figures.provider_share or 0.0)


def _slow_output(figures: Figures) -> bool:
    # While others wait for admission, rows are written beside them and hold nothing up.
    part = figures.output_wait_share
    if part is None or not _least("output_write_s", 0.05)(figures):
        return False
    waiting = (1 - part) * (figures.admission_wait_share or 0.0)
    calling = (1 - part - waiting) * (figures.provider_share or 0.0)
    return part >= _LARGE and part >= max(waiting, calling)


def _not_at_once(figures: Figures) -> bool:
    # Where no call has ended yet, the share says that they take long.
    return figures.provider_p50_s is None or figures.provider_p50_s >= 0.05


_WAITING_FOR_CONNECTIONS = _least("connection_wait_share", 0.25)
_SLOW_PROVIDER = _both(_least("provider_share", 0.6), _not_at_once)
_WAITING = _least("admission_wait_share", 0.3)


def _local_model_full(figures: Figures) -> bool:
    slots, under_way = figures.local_slots, figures.calls_under_way
    return slots is not None and under_way is not None and under_way >= 0.9 * slots


def _outside_calls(figures: Figures) -> bool:
    # Less than that is what servers need to hand a rollout on, which no component can mend.
    return _least("outside_share", 0.6)(figures) and _least("outside_s", 0.2)(figures)


def _provider_full(figures: Figures) -> bool:
    # More than a few tries repeated, or latency that grows with what is asked at once.
    return any(_least(name, least)(figures) for name, least in _FULL.items())


def _others_wait(figures: Figures) -> bool:
    # Few of those that are left wait for admission at a time, so that share alone says too little.
    return _WAITING(figures) or _least("rounds", 2)(figures)


def _failing(kind: str | None) -> _Rule:
    """Return the rule for a provider whose errors are mostly of `kind`; None: of any."""
    told = OTHER_ERROR if kind is None else PROVIDER_ERRORS[kind]
    return _Rule(
        "provider_errors",
        lambda figures: (
            _least("provider_errors_share", 0.2)(figures)
            and kind in (None, figures.provider_errors_of)
        ),
        ("provider_errors_share", "provider_retried_share", "active"),
        told.advice,
    )


_RULES: tuple[_Rule, ...] = (
    *map(_failing, PROVIDER_ERRORS),
    _failing(None),
    _Rule(
        "gc",
        _least("gc_share", 0.1),
        ("gc_share", "loop_lag_p99_ms", "cpu_share"),
        "keep fewer objects alive in servers and verifiers, or spread the load with --workers",
    ),
    _Rule(
        "machine",
        lambda figures: _starved(figures) or _filled(figures),
        (
            "machine_busy_share",
            "run_machine_share",
            "cpu_wait_share",
            "cpu_share",
            "loop_lag_p99_ms",
        ),
        "the machine is full, more concurrency would only queue: run less beside it, or use more "
        "cores",
    ),
    _Rule(
        "cpu",
        _FULL_CORE,
        ("cpu_share", "loop_lag_p99_ms", "provider_p50_s"),
        "spread the load over more processes with --workers",
    ),
    _Rule(
        "event_loop",
        _slow_loop,
        ("loop_lag_p99_ms", "cpu_share", "provider_p50_s"),
        "something blocks the event loop: move synchronous work of tools and verifiers off it, or "
        "give that server a process of its own",
    ),
    _Rule(
        "connections",
        # Those to a model of this machine that is full are waited for as it is.
        lambda figures: _WAITING_FOR_CONNECTIONS(figures) and not _local_model_full(figures),
        # A call's time has this wait in it, which is none of the provider's.
        ("connection_wait_share", "active"),
        "raise 'max_connections' of the model server that calls it, or see why connecting takes "
        "that long",
    ),
    _Rule(
        "disk",
        _slow_capture,
        ("commit_share", "commit_p99_ms", "provider_p50_s", "active"),
        "put the capture directory on a faster local disk",
    ),
    _Rule(
        "disk",
        _slow_output,
        ("output_wait_share", "output_write_s", "provider_p50_s", "active"),
        "put the output (--output) on a faster local disk",
    ),
    _Rule(
        "local_model",
        lambda figures: (
            _local_model_full(figures)
            and (_SLOW_PROVIDER(figures) or _WAITING_FOR_CONNECTIONS(figures))
        ),
        ("local_slots", "calls_under_way", "provider_p50_s"),
        "the model is the limit, more concurrency would only queue: use a faster machine, a "
        "smaller model, more threads or slots ('threads', 'parallel'), or fewer output tokens",
    ),
    _Rule(
        "provider",
        _both(_SLOW_PROVIDER, _provider_full),
        (
            "provider_share",
            "provider_growth",
            "provider_again_share",
            "provider_retried_share",
            "provider_p50_s",
            "active",
        ),
        "the provider is full, more concurrency would only queue: use a faster one, more "
        "replicas, or fewer output tokens",
    ),
    _Rule(
        "admission",
        _both(_SLOW_PROVIDER, _others_wait),
        ("rounds", "admission_wait_share", "provider_p50_s", "loop_lag_p99_ms", "active"),
        "raise --concurrency: the provider shows no sign of being full; if its latency grows "
        "then, it is the provider",
    ),
    _Rule(
        "outside_calls",
        _outside_calls,
        ("outside_share", "outside_s", "provider_p50_s", "loop_lag_p99_ms", "active"),
        "see what agents, tools and verifiers do meanwhile; where they only wait for something "
        "that can take more, raise --concurrency",
    ),
    _Rule(
        "admission",
        _WAITING,
        ("admission_wait_share", "provider_p50_s", "loop_lag_p99_ms", "active"),
        "raise --concurrency, if the provider can take more",
    ),
    _Rule(
        "provider",
        _SLOW_PROVIDER,
        (
            "provider_share",
            "provider_retried_share",
            "provider_p50_s",
            "loop_lag_p99_ms",
            "active",
        ),
        "the provider sets the pace: use a faster one, more replicas, or fewer output tokens",
    ),
)
