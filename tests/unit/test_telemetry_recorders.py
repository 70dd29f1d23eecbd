"""What model calls, capture, rollouts, tools and the transport leave in the numbers."""

import asyncio

import pytest

from nemo_gym.errors import CallTimeout, ConnectionLost
from nemo_gym.telemetry import live
from nemo_gym.telemetry.live import LiveCounts, live_counts
from nemo_gym.telemetry.model_calls import count_tokens, model_call_started
from nemo_gym.telemetry.recorded import Recorded
from nemo_gym.telemetry.series import CounterSeries, HistogramSeries
from nemo_gym.telemetry.work import (
    capture_committed,
    capture_failed,
    capture_submitted,
    connection_at_hand,
    connection_waited,
    rollout_finished,
    tool_call_ended,
)
from support.meters import metering

CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-5",
}


class Changes:
    """How far the always-running counts moved."""

    def __init__(self) -> None:
        self.before = self.read(live_counts())

    @staticmethod
    def read(live: LiveCounts) -> dict[str, float]:
        plain = {k: v for k, v in vars(live).items() if isinstance(v, int | float)}
        return {**plain, "model_calls_in_flight": live.model_calls_in_flight}

    def since(self) -> dict[str, float]:
        now = self.read(live_counts())
        return {k: v - self.before[k] for k, v in now.items() if v != self.before[k]}


def counts(series: CounterSeries | HistogramSeries) -> list[tuple[dict[str, str], int]]:
    return [
        (labels, held if isinstance(held, int) else held.count) for labels, held in series.read()
    ]


def test_a_call_that_succeeds_is_counted_whether_or_not_metrics_are_exported() -> None:
    changes = Changes()

    call = model_call_started("openai", "gpt-5", stream=False)
    during = changes.since()
    call.ended()

    assert during == {"model_calls_in_flight": 1}
    assert changes.since() == {"model_calls": 1}


def test_a_call_ends_once_whatever_is_said_afterwards() -> None:
    changes = Changes()

    call = model_call_started("openai", "gpt-5", stream=False)
    call.ended("timeout")
    call.ended()

    assert changes.since() == {"model_calls": 1, "model_errors": 1}


def test_an_exported_call_has_duration_first_chunk_retries_and_error_by_model() -> None:
    with metering() as metered:
        recorded = metered.exporting.recorded
        call = model_call_started("openai", "gpt-5", stream=True)
        call.retried("429")
        call.first_chunk()
        call.first_chunk()
        call.ended("stream_truncated")

    truncated = {**CALL, "error.type": "stream_truncated"}
    of_model = {k: v for k, v in CALL.items() if k != "gen_ai.operation.name"}
    assert counts(recorded.model_duration) == [(truncated, 1)]
    assert counts(recorded.model_first_chunk) == [(CALL, 1)]
    assert counts(recorded.model_retries) == [({**of_model, "error.type": "rate_limit"}, 1)]
    assert counts(recorded.model_errors) == [({**of_model, "error.type": "stream_truncated"}, 1)]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (200, None),
        (429, "rate_limit"),
        (401, "auth"),
        (404, "not_found"),
        (422, "client_error"),
        (504, "timeout"),
        (529, "upstream_error"),
    ],
)
def test_an_error_status_is_the_error_of_the_call(status: int, error: str | None) -> None:
    with metering() as metered:
        with model_call_started("openai", "gpt-5") as call:
            call.answered(status, stream=False)
            call.first_chunk()
        recorded = metered.exporting.recorded

    [(labels, _)] = counts(recorded.model_duration)
    assert labels.get("error.type") == error


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (ConnectionLost("gone", response_started=True), "connection"),
        (CallTimeout("idle"), "timeout"),
        (asyncio.CancelledError(), "cancelled"),
        (KeyError("bug"), "exception"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value,
)
def test_what_breaks_a_call_is_its_error_and_passes_through(
    raised: BaseException, error: str
) -> None:
    def break_off() -> None:
        with model_call_started("openai", "gpt-5") as call:
            call.answered(200, stream=True)
            raise raised

    changes = Changes()
    with metering() as metered, pytest.raises(type(raised)):
        break_off()

    [(labels, _)] = counts(metered.exporting.recorded.model_duration)
    assert labels["error.type"] == error
    assert changes.since() == {"model_calls": 1, "model_errors": 1}


def test_a_call_that_is_no_stream_has_no_time_to_first_chunk() -> None:
    with metering() as metered:
        call = model_call_started("openai", "gpt-5", stream=False)
        call.first_chunk()
        call.ended()

    assert counts(metered.exporting.recorded.model_first_chunk) == []


def test_tokens_are_counted_by_kind_and_unknown_ones_not_at_all() -> None:
    changes = Changes()
    with metering() as metered:
        recorded = metered.exporting.recorded
        count_tokens("openai", "gpt-5", tokens_in=100, tokens_out=None, cache_read=80, reasoning=0)

    kinds = {labels["nemo.gym.token.kind"]: n for labels, n in recorded.model_tokens.read()}
    usage = [labels["gen_ai.token.type"] for labels, _ in recorded.model_token_usage.read()]
    assert kinds == {"input": 100, "cache_read": 80, "reasoning": 0}
    assert usage == ["input"]
    assert changes.since() == {"tokens_in": 100}


def test_a_model_name_of_a_client_is_cut_and_the_series_stay_bounded() -> None:
    with metering() as metered:
        recorded = metered.exporting.recorded
        for number in range(1000):
            model_call_started("openai", f"{number}" + "x" * 5000, stream=False).ended()

    models = [labels["gen_ai.request.model"] for labels, _ in recorded.model_duration.read()]
    assert len(models) <= 201
    assert max(map(len, models)) <= 100
    assert sum(n for _, n in counts(recorded.model_duration)) == 1000


def test_beyond_the_limit_only_the_model_is_other_and_what_was_not_there_stays_away() -> None:
    with metering() as metered:
        recorded = metered.exporting.recorded
        for number in range(234):
            call = model_call_started("vllm", f"model-{number}", stream=True)
            call.first_chunk()
            call.ended("timeout" if number == 233 else None)
            call.retried("429")
            count_tokens("vllm", f"model-{number}", tokens_in=2, tokens_out=1)

    other = {"gen_ai.provider.name": "vllm", "gen_ai.request.model": "other"}
    chat = {**other, "gen_ai.operation.name": "chat"}
    timeout, again = {"error.type": "timeout"}, {"error.type": "rate_limit"}
    assert of_other(recorded.model_duration) == [(chat, 33), ({**chat, **timeout}, 1)]
    assert of_other(recorded.model_first_chunk) == [(chat, 34)]
    assert of_other(recorded.model_retries) == [({**other, **again}, 34)]
    assert recorded.model_errors.read()[-1][0]["gen_ai.request.model"] == "model-233"
    kinds = {labels["nemo.gym.token.kind"]: n for labels, n in of_other(recorded.model_tokens)}
    assert kinds == {"input": 2 * 134, "output": 134}  # two series a model


def test_beyond_the_limit_only_the_name_of_a_tool_is_other() -> None:
    with metering() as metered:
        for number in range(234):
            tool_call_ended(f"tool-{number}", 0.1, "bad_arguments" if number % 2 else None)
        recorded = metered.exporting.recorded

    name = {"gen_ai.tool.name": "other"}
    told = [
        (labels, n)
        for labels, n in counts(recorded.tool_duration)
        if name.items() <= labels.items()
    ]
    assert told == [(name, 17), ({**name, "error.type": "bad_arguments"}, 17)]


def of_other(series: CounterSeries | HistogramSeries) -> list[tuple[dict[str, str], int]]:
    """Return the series of calls to models that are beyond the limit."""
    read = counts(series)
    return [(labels, n) for labels, n in read if labels["gen_ai.request.model"] == "other"]


def test_a_commit_is_one_batch_with_its_rows_bytes_and_time() -> None:
    changes = Changes()
    with metering() as metered:
        recorded = metered.exporting.recorded
        for _ in range(5):
            capture_submitted()
        capture_committed(3, 12_000, 0.004)
        capture_failed("ENOSPC")

    assert changes.since() == {"rows_submitted": 5, "rows_durable": 3, "rows_failed": 1}
    assert [(r.count, r.total) for _, r in recorded.commit_rows.read()] == [(1, 3)]
    assert [(r.count, r.total) for _, r in recorded.commit_bytes.read()] == [(1, 12_000)]
    assert [(r.count, r.total) for _, r in recorded.commit_duration.read()] == [(1, 4.0)]
    assert counts(recorded.capture_failures) == [({"error.type": "ENOSPC"}, 1)]


def test_rollouts_are_counted_by_outcome() -> None:
    with metering() as metered:
        recorded = metered.exporting.recorded
        rollout_finished("rewarded", 2.5)
        rollout_finished("rewarded", 1.5)
        rollout_finished("timeout", 60.0)

    outcomes = {
        labels["nemo.gym.rollout.outcome"]: n for labels, n in counts(recorded.rollouts_finished)
    }
    totals = {
        labels["nemo.gym.rollout.outcome"]: r.total
        for labels, r in recorded.rollout_duration.read()
    }
    assert outcomes == {"rewarded": 2, "timeout": 1}
    assert totals == {"rewarded": 4000.0, "timeout": 60_000.0}


def test_a_tool_that_a_model_made_up_is_no_series_of_its_own() -> None:
    with metering() as metered:
        recorded = metered.exporting.recorded
        tool_call_ended("send_mail", 0.1)
        tool_call_ended("hallucinated_42", 0.0, "unknown_tool")

    names = [labels["gen_ai.tool.name"] for labels, _ in recorded.tool_duration.read()]
    assert names == ["send_mail", "unknown"]


def test_waits_for_connections_are_told_by_server_up_to_a_limit() -> None:
    live._reset()
    for number in range(1000):
        connection_waited(1.0, f"http://h:{number}")
    connection_waited(2.0, "http://h:7")

    waits = live_counts().connection_waits_to
    live._reset()
    assert waits["http://h:7"] == 3.0
    assert (len(waits), sum(waits.values())) == (101, 1002.0)


def test_the_wait_for_a_connection_is_recorded() -> None:
    changes = Changes()
    connection_waited(0.5, "http://h:1")
    connection_at_hand()
    with metering() as metered:
        connection_waited(0.25, "http://h:1")
        connection_at_hand()
        [(_, during)] = metered.exporting.recorded.connection_wait.read()
    connection_waited(1.0, "http://h:1")
    connection_at_hand()

    [(_, wait)] = metered.exporting.recorded.connection_wait.read()
    changed = changes.since()
    assert changed["connection_waits"] == 6
    assert changed["connection_waited_s"] == pytest.approx(1.75)
    assert during == wait
    assert (wait.count, wait.counts[0], wait.total) == (2, 1, 250.0)


ALL: list[HistogramSeries | CounterSeries] = [*Recorded().histograms(), *Recorded().counters()]


@pytest.mark.parametrize("series", ALL, ids=lambda series: series.described.name)
def test_no_instrument_has_a_rollout_id_among_its_attributes(
    series: HistogramSeries | CounterSeries,
) -> None:
    keys = series.described.keys

    assert not [key for key in keys if "rollout" in key and key != "nemo.gym.rollout.outcome"]
    assert not [key for key in keys if key.endswith((".id", ".path", ".url"))]


def test_every_instrument_has_a_name_of_its_own() -> None:
    names = [series.described.name for series in ALL]

    held = vars(Recorded()).keys() - {"rollouts_ended"}  # which two of them are counted from
    kept = [name for name in held if not name.startswith("_")]
    assert len(names) == len(set(names)) == len(kept)


def test_a_second_start_begins_with_empty_numbers() -> None:
    with metering():
        rollout_finished("rewarded", 1.0)
    with metering() as again:
        held = again.exporting.recorded.rollouts_finished.read()

    assert held == []
