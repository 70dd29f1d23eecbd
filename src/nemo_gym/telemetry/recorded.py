"""Every instrument beyond the observer's: model calls, tools, capture, rollouts, connections.

One `Recorded` is made when a process starts to export and dropped when it stops. Attribute values
come from configuration and fixed lists; never a rollout id, a path or a text of a user.
"""

from collections.abc import Sequence
from itertools import compress
from operator import itemgetter

from nemo_gym.telemetry.ended_calls import EndedCall, Tokens, known
from nemo_gym.telemetry.live import live_counts
from nemo_gym.telemetry.names import DRIVER_DURATION_BOUNDARIES_MS
from nemo_gym.telemetry.series import CounterSeries, Gathered, HistogramSeries
from nemo_gym.telemetry.tracing import ROLLOUT_OUTCOME

__all__ = [
    "COMMIT_DURATION_BOUNDARIES_MS",
    "COMMIT_ROWS_BOUNDARIES",
    "OPERATION",
    "OPERATION_DURATION_BOUNDARIES_S",
    "TOKEN_BOUNDARIES",
    "Recorded",
]

OPERATION = "chat"
"""`gen_ai.operation.name` of every call to a provider."""

OPERATION_DURATION_BOUNDARIES_S: tuple[float, ...] = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
"""As the OpenTelemetry GenAI conventions ask for."""
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
_TOOL = "gen_ai.tool.name"


_NAMES = itemgetter(0)
_KINDS = ("input", "output", "cache_read", "cache_creation", "reasoning")
"""`nemo.gym.token.kind` of each of the `Tokens`; the first two have a histogram too."""


def _count_ended() -> None:
    live_counts()  # which counts whatever has ended, here too while this process exports


class Recorded:
    """The plain numbers of one process, by instrument."""

    def __init__(self) -> None:
        self._make_model_histograms()
        self._make_model_counters()
        self._make_capture_series()
        self._make_rollout_series()

    def _make_model_histograms(self) -> None:
        call = (_OPERATION, _PROVIDER, _MODEL)
        seconds, gather = OPERATION_DURATION_BOUNDARIES_S, _count_ended
        self.model_duration = HistogramSeries(
            "gen_ai.client.operation.duration",
            "s",
            seconds,
            (*call, _ERROR),
            unbounded=(_MODEL,),
            gather=gather,
        )
        self.model_first_chunk = HistogramSeries(
            "gen_ai.client.operation.time_to_first_chunk",
            "s",
            seconds,
            call,
            unbounded=(_MODEL,),
            gather=gather,
        )
        self.model_token_usage = HistogramSeries(
            "gen_ai.client.token.usage",
            "{token}",
            TOKEN_BOUNDARIES,
            (*call, "gen_ai.token.type"),
            unbounded=(_MODEL,),
            gather=gather,
        )
        self.tool_duration = HistogramSeries(
            "gen_ai.execute_tool.duration", "s", seconds, (_TOOL, _ERROR), unbounded=(_TOOL,)
        )

    def _make_model_counters(self) -> None:
        one, gather = (_PROVIDER, _MODEL), _count_ended
        self.model_tokens = CounterSeries(
            "gym.model.tokens_total",
            "{token}",
            (*one, "nemo.gym.token.kind"),
            unbounded=(_MODEL,),
            gather=gather,
        )
        self.model_retries = CounterSeries(
            "gym.model.retries_total", "{retry}", (*one, _ERROR), unbounded=(_MODEL,)
        )
        self.model_errors = CounterSeries(
            "gym.model.errors_total", "{error}", (*one, _ERROR), unbounded=(_MODEL,), gather=gather
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
        ended = Gathered(self._count_rollouts)
        self.rollouts_ended = ended
        """Takes the outcome and the ms of each rollout; the next two are counted from it."""
        self.rollout_duration = HistogramSeries(
            "gym.driver.rollout.duration_ms",
            "ms",
            DRIVER_DURATION_BOUNDARIES_MS,
            (ROLLOUT_OUTCOME,),
            gather=ended.gather,
        )
        self.rollouts_finished = CounterSeries(
            "gym.driver.rollouts.finished_total",
            "{rollout}",
            (ROLLOUT_OUTCOME,),
            gather=ended.gather,
        )
        self.connection_wait = HistogramSeries(
            "gym.http.client.connection_wait_ms",
            "ms",
            COMMIT_DURATION_BOUNDARIES_MS,
            gather=_count_ended,
        )

    def count_waits(self, waited_s: Sequence[float]) -> None:
        """Count waits for a connection, each once."""
        self.connection_wait.of().record_all([each * 1000 for each in waited_s])

    def count_calls(self, ended: Sequence[EndedCall]) -> None:
        """Count calls to models, each once."""
        names = dict.fromkeys(map(_NAMES, ended))  # in the order in which they came
        for provider, model in names:
            one = (provider, model)
            calls = ended if len(names) == 1 else [call for call in ended if call[0] == one]
            self._count_model(provider, model, calls)

    def _count_model(self, provider: str, model: str, ended: Sequence[EndedCall]) -> None:
        _, took, waited, errors, tokens, _ = zip(*ended, strict=True)
        if any(errors):
            self._count_errors(provider, model, ended)
            took = tuple(call[1] for call in ended if call[3] is None)
        well, _ = known(took)
        if well:
            self.model_duration.of(OPERATION, provider, model, None).record_all(well)
        begun, _ = known(waited)
        if begun:
            self.model_first_chunk.of(OPERATION, provider, model).record_all(begun)
        # A tuple that is there is true, and `filter` finds so without a step of ours.
        self._count_tokens(provider, model, list(filter(None, tokens)))

    def _count_errors(self, provider: str, model: str, ended: Sequence[EndedCall]) -> None:
        for _, took_s, _, error, _, _ in ended:
            if error is not None and took_s is not None:
                self.model_duration.record(took_s, OPERATION, provider, model, error)
                self.model_errors.add(1, provider, model, error)

    def _count_tokens(self, provider: str, model: str, tokens: Sequence[Tokens]) -> None:
        for kind, counts in zip(_KINDS, zip(*tokens, strict=True), strict=False):
            told, total = known(counts)
            if told:
                self.model_tokens.add(total, provider, model, kind)
                if kind in _KINDS[:2]:
                    usage = self.model_token_usage.of(OPERATION, provider, model, kind)
                    usage.record_all(told)

    def _count_rollouts(self, ended: Sequence[tuple[str, float]]) -> None:
        outcomes, took_ms = zip(*ended, strict=True)
        for outcome in dict.fromkeys(outcomes):
            own = compress(took_ms, map(outcome.__eq__, outcomes))
            self.rollouts_finished.add(outcomes.count(outcome), outcome)
            self.rollout_duration.of(outcome).record_all(own)

    def histograms(self) -> list[HistogramSeries]:
        """Return every histogram, in a stable order."""
        return [value for value in vars(self).values() if isinstance(value, HistogramSeries)]

    def counters(self) -> list[CounterSeries]:
        """Return every counter, in a stable order."""
        return [value for value in vars(self).values() if isinstance(value, CounterSeries)]
