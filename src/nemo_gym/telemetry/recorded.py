"""Every instrument beyond the observer's: model calls, tools, capture, rollouts, connections.

One `Recorded` is made when a process starts to export and dropped when it stops. Attribute values
come from configuration and fixed lists; never a rollout id, a path or a text of a user.
"""

from collections.abc import Sequence
from typing import TypeVar, cast

from nemo_gym.telemetry.names import DRIVER_DURATION_BOUNDARIES_MS
from nemo_gym.telemetry.series import OTHER, CounterSeries, Gathering, HistogramSeries

__all__ = [
    "COMMIT_DURATION_BOUNDARIES_MS",
    "COMMIT_ROWS_BOUNDARIES",
    "LIVE_DURATION_BOUNDARIES_MS",
    "LIVE_DURATION_BOUNDARIES_S",
    "OPERATION",
    "OPERATION_DURATION_BOUNDARIES_S",
    "TOKEN_BOUNDARIES",
    "CallsOfModel",
    "EndedCall",
    "Recorded",
    "Tokens",
]

OPERATION = "chat"
"""`gen_ai.operation.name` of every call to a provider."""

OPERATION_DURATION_BOUNDARIES_S: tuple[float, ...] = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
"""As the OpenTelemetry GenAI conventions ask for."""
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
TOKEN_BOUNDARIES: tuple[float, ...] = tuple(float(4**power) for power in range(14))
"""1, 4, 16 … 67108864, as the GenAI conventions ask for."""
COMMIT_DURATION_BOUNDARIES_MS: tuple[float, ...] = (
    0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096,
)  # fmt: skip
COMMIT_ROWS_BOUNDARIES: tuple[float, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
COMMIT_BYTES_BOUNDARIES: tuple[float, ...] = tuple(float(4**power) for power in range(5, 15))

_OPERATION = "gen_ai.operation.name"
_PROVIDER = "gen_ai.provider.name"
_MODEL = "gen_ai.request.model"
_ERROR = "error.type"


T = TypeVar("T")

EndedCall = tuple[float | None, str | None, "Tokens | None"]
"""What a call leaves at its end: seconds, category of its error, tokens; None: not known."""
Tokens = tuple[int | None, int | None, int | None, int | None, int | None]
"""Of input, output, and their parts: cache read, cache creation, reasoning; None: not known."""
_KINDS = ("input", "output", "cache_read", "cache_creation", "reasoning")
"""`nemo.gym.token.kind` of each of the `Tokens`; the first two have a histogram too."""


class CallsOfModel(Gathering[EndedCall]):
    """Calls to one model, told once each, at their end."""

    __slots__ = ("_names", "_recorded")

    def __init__(self, recorded: "Recorded", provider: str, model: str) -> None:
        super().__init__()
        self._recorded = recorded
        self._names = (provider, model)

    def _count(self, readings: list[EndedCall]) -> None:
        took, errors, tokens = zip(*readings, strict=True)
        if _known(errors):
            self._count_errors(readings)
            took = tuple(took_s for took_s, error, _ in readings if error is None)
        well = _known(took)
        if well:
            duration = self._recorded.model_duration.of(OPERATION, *self._names, None)
            duration.record_all(well)
        self._count_tokens(_known(tokens))

    def _count_errors(self, readings: list[EndedCall]) -> None:
        for took_s, error, _ in readings:
            if error is not None and took_s is not None:
                names = (*self._names, error)
                self._recorded.model_duration.record(took_s, OPERATION, *names)
                self._recorded.model_errors.add(1, *names)

    def _count_tokens(self, tokens: Sequence[Tokens]) -> None:
        names = self._names
        for kind, counts in zip(_KINDS, zip(*tokens, strict=True), strict=False):
            known = _known(counts)
            if known:
                self._recorded.model_tokens.add(sum(known), *names, kind)
                if kind in _KINDS[:2]:
                    usage = self._recorded.model_token_usage.of(OPERATION, *names, kind)
                    usage.record_all(known)


def _known(column: Sequence[T | None]) -> Sequence[T]:
    """Return what is not None, in order; mostly that is all or nothing."""
    if None not in column:
        return cast("Sequence[T]", column)
    return [value for value in column if value is not None]


class _CallsByModel(dict[tuple[str, str], CallsOfModel]):
    """By provider and model, made on first use; names may come from clients, so they are few."""

    def __init__(self, recorded: "Recorded", limit: int) -> None:
        self._recorded = recorded
        self._limit = limit

    def __missing__(self, names: tuple[str, str]) -> CallsOfModel:
        if len(self) >= self._limit:
            names = (OTHER, OTHER)
        return self.setdefault(names, CallsOfModel(self._recorded, *names))


class Recorded:
    """The plain numbers of one process, by instrument."""

    def __init__(self) -> None:
        self._make_model_series()
        self._make_capture_series()
        self._make_rollout_series()

    def _make_model_series(self) -> None:
        call = (_OPERATION, _PROVIDER, _MODEL)
        seconds, gather = OPERATION_DURATION_BOUNDARIES_S, self._gather_calls
        self.model_duration = HistogramSeries(
            "gen_ai.client.operation.duration", "s", seconds, (*call, _ERROR), gather=gather
        )
        self.model_first_chunk = HistogramSeries(
            "gen_ai.client.operation.time_to_first_chunk", "s", seconds, call
        )
        self.model_token_usage = HistogramSeries(
            "gen_ai.client.token.usage",
            "{token}",
            TOKEN_BOUNDARIES,
            (*call, "gen_ai.token.type"),
            gather=gather,
        )
        self.model_tokens = CounterSeries(
            "gym.model.tokens_total",
            "{token}",
            (_PROVIDER, _MODEL, "nemo.gym.token.kind"),
            gather=gather,
        )
        self.calls_of_model = _CallsByModel(self, self.model_tokens.described.limit)
        self.model_retries = CounterSeries(
            "gym.model.retries_total", "{retry}", (_PROVIDER, _MODEL, _ERROR)
        )
        self.model_errors = CounterSeries(
            "gym.model.errors_total", "{error}", (_PROVIDER, _MODEL, _ERROR), gather=gather
        )
        self.tool_duration = HistogramSeries(
            "gen_ai.execute_tool.duration", "s", seconds, ("gen_ai.tool.name", _ERROR)
        )

    def _make_capture_series(self) -> None:
        self.commit_rows = HistogramSeries(
            "gym.capture.commit.batch_size", "{row}", COMMIT_ROWS_BOUNDARIES
        )
        self.commit_duration = HistogramSeries(
            "gym.capture.commit.duration_ms", "ms", COMMIT_DURATION_BOUNDARIES_MS
        )
        self.commit_bytes = HistogramSeries(
            "gym.capture.commit.bytes", "By", COMMIT_BYTES_BOUNDARIES
        )
        self.capture_failures = CounterSeries("gym.capture.failures_total", "{failure}", (_ERROR,))

    def _make_rollout_series(self) -> None:
        self.rollout_duration = HistogramSeries(
            "gym.driver.rollout.duration_ms",
            "ms",
            DRIVER_DURATION_BOUNDARIES_MS,
            ("nemo.gym.rollout.outcome",),
        )
        self.rollouts_finished = CounterSeries(
            "gym.driver.rollouts.finished_total", "{rollout}", ("nemo.gym.rollout.outcome",)
        )
        self.connection_wait = HistogramSeries(
            "gym.http.client.connection_wait_ms", "ms", COMMIT_DURATION_BOUNDARIES_MS
        )

    def _gather_calls(self) -> None:
        for calls in self.calls_of_model.copy().values():
            calls.gather()

    def histograms(self) -> list[HistogramSeries]:
        """Return every histogram, in a stable order."""
        return [value for value in vars(self).values() if isinstance(value, HistogramSeries)]

    def counters(self) -> list[CounterSeries]:
        """Return every counter, in a stable order."""
        return [value for value in vars(self).values() if isinstance(value, CounterSeries)]
