"""Every instrument beyond the observer's: model calls, tools, capture, rollouts, connections.

One `Recorded` is made when a process starts to export and dropped when it stops. Attribute values
come from configuration and fixed lists; never a rollout id, a path or a text of a user.
"""

from nemo_gym.telemetry.names import DRIVER_DURATION_BOUNDARIES_MS
from nemo_gym.telemetry.series import (
    CounterSeries,
    HistogramSeries,
    PlainCounter,
    PlainHistogram,
)

__all__ = [
    "COMMIT_DURATION_BOUNDARIES_MS",
    "COMMIT_ROWS_BOUNDARIES",
    "LIVE_DURATION_BOUNDARIES_MS",
    "LIVE_DURATION_BOUNDARIES_S",
    "OPERATION",
    "OPERATION_DURATION_BOUNDARIES_S",
    "TOKEN_BOUNDARIES",
    "Recorded",
    "TokensOfModel",
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


class TokensOfModel:
    """Tokens of one model by kind: what is counted on is looked up once a kind."""

    __slots__ = ("_input", "_names", "_output", "_parts", "_recorded")

    def __init__(self, recorded: "Recorded", provider: str, model: str) -> None:
        self._recorded = recorded
        self._names = (provider, model)
        self._input: tuple[PlainHistogram, PlainCounter] | None = None
        self._output: tuple[PlainHistogram, PlainCounter] | None = None
        self._parts: dict[str, PlainCounter] = {}

    def used(self, tokens_in: int | None, tokens_out: int | None) -> None:
        """Count what one call used, and record how much that was; None: not known."""
        if tokens_in is not None:
            usage, total = self._input = self._input or self._bound("input")
            usage.record(tokens_in)
            total.count += tokens_in
        if tokens_out is not None:
            usage, total = self._output = self._output or self._bound("output")
            usage.record(tokens_out)
            total.count += tokens_out

    def count(self, kind: str, count: int) -> None:
        """Count tokens that are a part of the input or the output."""
        total = self._parts.get(kind)
        if total is None:
            total = self._parts[kind] = self._recorded.model_tokens.of(*self._names, kind)
        total.count += count

    def _bound(self, kind: str) -> tuple[PlainHistogram, PlainCounter]:
        usage = self._recorded.model_token_usage.of(OPERATION, *self._names, kind)
        return usage, self._recorded.model_tokens.of(*self._names, kind)


class Recorded:
    """The plain numbers of one process, by instrument."""

    def __init__(self) -> None:
        self._tokens_of: dict[tuple[str, str], TokensOfModel] = {}
        self._make_model_series()
        self._make_capture_series()
        self._make_rollout_series()

    def _make_model_series(self) -> None:
        call = (_OPERATION, _PROVIDER, _MODEL)
        seconds = OPERATION_DURATION_BOUNDARIES_S
        self.model_duration = HistogramSeries(
            "gen_ai.client.operation.duration", "s", seconds, (*call, _ERROR)
        )
        self.model_first_chunk = HistogramSeries(
            "gen_ai.client.operation.time_to_first_chunk", "s", seconds, call
        )
        self.model_token_usage = HistogramSeries(
            "gen_ai.client.token.usage", "{token}", TOKEN_BOUNDARIES, (*call, "gen_ai.token.type")
        )
        self.model_tokens = CounterSeries(
            "gym.model.tokens_total", "{token}", (_PROVIDER, _MODEL, "nemo.gym.token.kind")
        )
        self.model_retries = CounterSeries(
            "gym.model.retries_total", "{retry}", (_PROVIDER, _MODEL, _ERROR)
        )
        self.model_errors = CounterSeries(
            "gym.model.errors_total", "{error}", (_PROVIDER, _MODEL, _ERROR)
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

    def tokens_of(self, provider: str, model: str) -> TokensOfModel:
        """Return what the tokens of one model are counted on."""
        found = self._tokens_of.get((provider, model))
        if found is None:
            found = TokensOfModel(self, provider, model)
            # Names may come from clients: series beyond their limit share one, these are not kept.
            if len(self._tokens_of) < self.model_tokens.described.limit:
                self._tokens_of[provider, model] = found
        return found

    def histograms(self) -> list[HistogramSeries]:
        """Return every histogram, in a stable order."""
        return [value for value in vars(self).values() if isinstance(value, HistogramSeries)]

    def counters(self) -> list[CounterSeries]:
        """Return every counter, in a stable order."""
        return [value for value in vars(self).values() if isinstance(value, CounterSeries)]
