"""Counts of this process that always run, for the live view: plain numbers, a few a call.

They cost tens of nanoseconds and need nothing installed, so they do not depend on telemetry being
on. Figures that cost more, such as series by model, are in `recorded` and only while it exports.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import compress
from time import monotonic, perf_counter
from typing import Protocol

from nemo_gym.telemetry.ended_calls import EndedCall, EndedCalls, known
from nemo_gym.telemetry.series import Gathered, PlainHistogram

__all__ = [
    "LIVE_DURATION_BOUNDARIES_MS",
    "LIVE_DURATION_BOUNDARIES_S",
    "LOADS",
    "LatencyByLoad",
    "LiveCounts",
    "Ongoing",
    "RolloutCounts",
    "ServerCounts",
    "counting",
    "live_counts",
    "server_counts",
]

_STEPS_OF_A_DECADE = (*range(100, 250, 2), *range(250, 500, 5), *range(500, 1000, 10))
LIVE_DURATION_BOUNDARIES_S: tuple[float, ...] = (
    *(round(step / 10**power, 6) for power in range(5, -1, -1) for step in _STEPS_OF_A_DECADE),
    1000.0,
)
"""1 ms to 1000 s for the live view: a quantile is off by 2 % at most, and bounds are round, so
that calls of a second are not shown as shorter ones."""
LIVE_DURATION_BOUNDARIES_MS: tuple[float, ...] = tuple(
    round(bound * 1000, 3) for bound in LIVE_DURATION_BOUNDARIES_S
)
_MOST_ZEROS = 1 << 14
"""So many calls that did not wait are counted at once."""
LOADS = 16
"""Classes of `LatencyByLoad`; the last holds everything from 32768 under way on."""


class Ongoing:
    """How long things have taken, added up, those under way as far as they are.

    Times are of `time.perf_counter`, in seconds.
    """

    __slots__ = ("_began", "_ended_s", "most")

    def __init__(self) -> None:
        self.most = 0
        """Most that were under way at once."""
        self._ended_s = 0.0
        self._began: dict[int, float] = {}

    def begin(self, what: object, at: float) -> None:
        """Say that `what`, which lives until its end, began."""
        began = self._began
        began[id(what)] = at
        if len(began) > self.most:  # noqa: PLR1730 - `max` costs twice as much, a call
            self.most = len(began)

    def end(self, what: object, at: float) -> None:
        """Say that `what` ended; only what began counts."""
        self._ended_s += at - self._began.pop(id(what), at)

    def total_s(self, now: float) -> float:
        """Return the seconds of all that ended and of all that is under way."""
        return self._ended_s + sum(now - began for began in self._began.copy().values())


class UnderWay(Protocol):
    """A call that has not ended."""

    started: float
    """When it began, by `time.perf_counter`."""


class LatencyByLoad:
    """Calls and their seconds, by how many were under way when each began: 1, 2-3, 4-7, ….

    What answers in the order of asking lets calls wait once it is full, so those that began in
    company take longer.
    """

    __slots__ = ("calls", "seconds")

    def __init__(self) -> None:
        self.calls = [0] * LOADS
        self.seconds = [0.0] * LOADS

    def record(self, under_way: int, took_s: float) -> None:
        """Add one call, itself among those `under_way`."""
        load = under_way.bit_length() - 1
        if load >= LOADS:
            load = LOADS - 1
        self.calls[load] += 1
        self.seconds[load] += took_s

    def record_all(self, under_way: Sequence[int], took_s: Sequence[float]) -> None:
        """Add several calls, as many seconds as there are numbers under way."""
        lengths = list(map(int.bit_length, under_way))
        for length in set(lengths):
            load = min(length, LOADS) - 1
            self.calls[load] += lengths.count(length)
            self.seconds[load] += sum(compress(took_s, map(length.__eq__, lengths)))


class ServerCounts:
    """Requests of one server of this process, bumped by the outermost layer of its stack."""

    __slots__ = ("errors", "in_flight", "requests")

    def __init__(self) -> None:
        self.in_flight = 0
        self.requests = 0
        """Requests begun."""
        self.errors = 0
        """Responses of 500 and above, and handlers that raised."""


class RolloutCounts:
    """Rollouts of the driver in this process; `planned` None where the number is not known."""

    __slots__ = (
        "active",
        "began_at",
        "failed",
        "finished",
        "finished_before",
        "offered",
        "planned",
        "resident",
        "reward_total",
        "running",
        "waiting",
        "writing",
    )

    def __init__(self) -> None:
        self.planned: int | None = None
        self.began_at: float | None = None
        """`time.perf_counter` at which this session began."""
        self.offered = 0
        """Handed to dispatch."""
        self.resident = 0
        """Waiting for admission or running."""
        self.active = 0
        """Admitted past the concurrency limit and running."""
        self.finished = 0
        """Ended with a reward, in this session of the run or in an earlier one."""
        self.finished_before = 0
        """Of these, the ones of earlier sessions."""
        self.failed = 0
        """Ended without one, in this session."""
        self.reward_total = 0.0
        """Of all that are finished."""
        self.waiting = Ongoing()
        """Waits for admission."""
        self.running = Ongoing()
        """Rollouts, from their admission on."""
        self.writing = Ongoing()
        """Waits for the row of a rollout to be durable."""

    def begin(self, planned: int, finished_before: int = 0, reward_before: float = 0.0) -> None:
        """Begin a run, or go on where its earlier sessions ended; `planned` are its rollouts."""
        self.planned, self.began_at = planned, perf_counter()
        self.finished = self.finished_before = finished_before
        self.reward_total = reward_before
        self.offered = self.failed = 0
        self.waiting, self.running, self.writing = Ongoing(), Ongoing(), Ongoing()


class ConnectionWaits(Gathered[float]):
    """Seconds that calls over HTTP waited for a connection; most find one at hand."""

    __slots__ = ("_read", "at_hand")

    def __init__(self, count: Callable[[Sequence[float]], None]) -> None:
        super().__init__(count)
        self.at_hand = 0
        """How many did not wait at all: a `+= 1` is a fifth of what recording a zero costs."""
        self._read = 0

    def _count_fresh(self) -> None:
        at_hand = self.at_hand  # read once: calls go on meanwhile
        fresh, self._read = at_hand - self._read, at_hand
        # There may be millions, where nobody looked for hours.
        for counted in range(0, fresh, _MOST_ZEROS):
            self._count([0.0] * min(_MOST_ZEROS, fresh - counted))
        super()._count_fresh()


class LiveCounts:
    """Everything counted in this process since it began."""

    def __init__(self) -> None:
        self.began_at = monotonic()
        """`time.monotonic` at which counting began."""
        self.servers: dict[str, ServerCounts] = {}
        self.rollouts = RolloutCounts()
        self.model_calls = 0
        """Calls to a provider that ended, well or not."""
        self.model_errors = self.model_retries = 0
        self.model_failures: defaultdict[str, int] = defaultdict(int)
        """Errors that calls ended in and those they were tried again for, by category."""
        self.tokens_in = self.tokens_out = 0
        self.model_open: set[UnderWay] = set()
        """Calls to a provider that have not ended, from their first try on."""
        self.model_duration = PlainHistogram(LIVE_DURATION_BOUNDARIES_S)
        """Of the calls that ended with their first try."""
        self.model_by_load = LatencyByLoad()
        """Of these, the ones without an error."""
        self.local_slots: dict[int, int] = {}
        """How many calls each model that this process runs itself works on at once."""
        self.model_retried_s = 0.0
        """Seconds of the others, waits between tries included, added up."""
        self.tool_calls = self.tool_errors = 0
        self.rows_submitted = 0
        """Captured rows handed to the store."""
        self.rows_durable = 0
        self.rows_failed = 0
        self.commit_duration = PlainHistogram(LIVE_DURATION_BOUNDARIES_MS)
        self.connection_waits = 0
        self.connection_waited_s = 0.0
        """Seconds that calls over HTTP waited for a connection, added up."""
        self.connection_waits_to: defaultdict[str, float] = defaultdict(float)
        """The same by scheme, host and port of the server that they go to."""
        self.ended_calls = EndedCalls(self._count_calls)
        """Calls to a provider that have ended; what is said of them above is counted from it."""
        self.connections = ConnectionWaits(self._count_waits)
        """Seconds that each call over HTTP waited for a connection, likewise."""

    @property
    def model_calls_in_flight(self) -> int:
        """How many calls to a provider have not ended."""
        return len(self.model_open)

    def model_open_s(self, now: float) -> float:
        """Return the seconds so far of all calls to a provider that have not ended."""
        # The copy is one step under the GIL: calls come and go in other threads meanwhile.
        return sum(now - call.started for call in self.model_open.copy())

    def gather(self) -> None:
        """Count all that has ended before this."""
        self.ended_calls.gather()
        self.connections.gather()

    def _count_waits(self, waited_s: Sequence[float]) -> None:
        self.connection_waits += len(waited_s)
        self.connection_waited_s += sum(waited_s)

    def _count_calls(self, ended: Sequence[EndedCall]) -> None:
        _, seconds, _, errors, tokens, company = zip(*ended, strict=True)
        took, _ = known(seconds)
        if len(took) < len(ended) or any(errors) or not all(company):
            took, company = self._count_unlike(ended)
        self.model_calls += len(took)
        self.model_duration.record_all(took)
        self.model_by_load.record_all(company, took)
        told = list(filter(None, tokens))
        if told:
            asked, answered, *_ = zip(*told, strict=True)
            self.tokens_in += known(asked)[1]
            self.tokens_out += known(answered)[1]

    def _count_unlike(
        self, ended: Sequence[EndedCall]
    ) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Count calls that failed or were tried again; return the others' seconds and company."""
        others: list[tuple[float, int]] = []
        for _, took_s, _, error, _, under_way in ended:
            if took_s is None:
                continue
            if error is None and under_way:
                others.append((took_s, under_way))
                continue
            self.model_calls += 1
            if error is not None:
                self.model_errors += 1
                self.model_failures[error] += 1
            if under_way:
                self.model_duration.record(took_s)
            else:
                self.model_retried_s += took_s
        return tuple(took for took, _ in others), tuple(load for _, load in others)


_LIVE = LiveCounts()


def live_counts() -> LiveCounts:
    """Return the counts of this process, every call that has ended counted."""
    _LIVE.gather()
    return _LIVE


def counting() -> LiveCounts:
    """Return the counts of this process for who counts on them, and reads none of calls."""
    return _LIVE


def server_counts(name: str) -> ServerCounts:
    """Return the counts of the server instance `name`, made on first use; keep the object."""
    return _LIVE.servers.setdefault(name, ServerCounts())


def _reset() -> None:
    global _LIVE  # noqa: PLW0603 - one set of counts a process
    _LIVE = LiveCounts()


# What the parent counted is the parent's.
os.register_at_fork(after_in_child=_reset)
