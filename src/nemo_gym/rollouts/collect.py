"""The driver: attempts in, every one of them ended in exactly one row of the run's files.

Everything that varies is handed in: the client, the sink, hooks, the clock. It knows nothing of
servers, processes or captures. Memory follows the concurrency: rows are read as there is room for
them and forgotten when their line is durable.
"""

import asyncio
import logging
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from typing import Any

from nemo_gym.errors import GymError
from nemo_gym.rollouts.admission import Admission, admission_for
from nemo_gym.rollouts.dispatch import RunClient, run_on_agent
from nemo_gym.rollouts.lines import Members, join_members
from nemo_gym.rollouts.outcome import Failure, Rewarded
from nemo_gym.rollouts.progress import Progress
from nemo_gym.rollouts.record import EndedAttempt, Timing, identity_of
from nemo_gym.rollouts.resume import Attempt
from nemo_gym.rollouts.sink import RolloutSink, RowKind
from nemo_gym.rollouts.sizes import record_sizes
from nemo_gym.telemetry.instruments import swallowing
from nemo_gym.telemetry.live import live_counts
from nemo_gym.telemetry.observer import DriverCounts, driver_metrics
from nemo_gym.telemetry.tracing import (
    ROLLOUT_ID,
    ROLLOUT_OUTCOME,
    ROLLOUT_REWARD,
    NoSpan,
    Span,
    span,
    tracer,
)
from nemo_gym.telemetry.work import rollout_finished

__all__ = ["CollectOptions", "Collector", "Hooks", "StopSignal"]

logger = logging.getLogger(__name__)

_BATCH_ROWS = 64
_BATCH_BYTES = 4 << 20
_LOOKAHEAD = 16
"""Rollouts that may wait for admission, so that a free place is never waited for."""


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """How rollouts are run."""

    concurrency: int = 32
    """Rollouts under way at once."""
    rollout_timeout_s: float = 3600.0
    """Longest that one rollout may take, in seconds, waiting for admission left out."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What happens around a rollout; None does nothing."""

    prepare: Callable[[Sequence[Mapping[str, object]]], None] | None = None
    """Called off the loop with the `_ng_*` keys of attempts before any of them is dispatched."""
    attach: Callable[[EndedAttempt], Awaitable[Mapping[str, object]]] | None = None
    """Called when an attempt has ended; returns what is attached to its row."""
    admission: Callable[[int], Admission] = admission_for
    """Makes the limit on rollouts under way, given their number."""
    finished: Callable[[EndedAttempt, Members], None] | None = None
    """Called once the row of an attempt is durable."""


class StopSignal:
    """Tells a run to stop: first nothing more is dispatched, then what runs is ended."""

    def __init__(self) -> None:
        self.draining = False
        """Nothing more is dispatched."""
        self.stopping = False
        """What runs is ended, too."""
        self._scopes: set[asyncio.Timeout] = set()

    def drain(self) -> None:
        """Dispatch nothing more; what runs is finished."""
        self.draining = True

    def stop(self) -> None:
        """End what runs; each ends as `cancelled`. Call it on the loop that runs the rollouts."""
        self.draining = self.stopping = True
        for scope in self._scopes:
            if not scope.expired():
                scope.reschedule(asyncio.get_running_loop().time())

    async def bounded(
        self, work: Coroutine[Any, Any, Rewarded | Failure], timeout_s: float
    ) -> Rewarded | Failure:
        """Return what `work` returns; a failure when it takes too long or the run is stopped."""
        scope = asyncio.timeout(timeout_s)
        try:
            async with scope:
                self._scopes.add(scope)
                return await work
        except TimeoutError:
            if not scope.expired():
                raise
        finally:
            self._scopes.discard(scope)
        if self.stopping:
            return Failure("cancelled", "the run was stopped while this rollout was under way")
        return Failure("timeout", f"the rollout took longer than {timeout_s:g} s")


class Collector:
    """Runs attempts on their agents; one `run` an instance."""

    def __init__(
        self,
        client: RunClient,
        sink: RolloutSink,
        progress: Progress,
        *,
        options: CollectOptions | None = None,
        hooks: Hooks | None = None,
        stop: StopSignal | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._sink = sink
        self._progress = progress
        self._options = options or CollectOptions()
        self._hooks = hooks or Hooks()
        self._stop = stop or StopSignal()
        self._clock = clock
        self._live = live_counts().rollouts
        self._metrics = driver_metrics()
        # Bumped whether or not somebody reads them: that costs less than asking each time.
        self._counts = DriverCounts() if self._metrics is None else self._metrics.driver
        self._admission = self._hooks.admission(self._options.concurrency)
        self._places = asyncio.Semaphore(self._options.concurrency + _LOOKAHEAD)

    async def run(self, attempts: Iterator[Attempt]) -> None:
        """Run every attempt; returns when all have ended, or what ran when told to stop has.

        Raises `OutputUnusable` when a row cannot be written; what runs then is ended without one.
        """
        try:
            async with asyncio.TaskGroup() as group:
                async for attempt in self._offered(attempts):
                    group.create_task(self._rollout(attempt))
        except* GymError as errors:
            # Every row fails alike on a full disk: one message is enough.
            raise _first(errors) from None

    async def _offered(self, attempts: Iterator[Attempt]) -> AsyncIterator[Attempt]:
        """Yield attempts as there is a place for them; reading and preparing is off the loop."""
        while not self._stop.draining:
            batch = await asyncio.to_thread(self._next_batch, attempts)
            if not batch:
                return
            for attempt in batch:
                await self._places.acquire()
                if self._stop.draining:
                    return
                self._live.offered += 1
                self._counts.offered += 1
                yield attempt

    def _next_batch(self, attempts: Iterator[Attempt]) -> list[Attempt]:
        batch: list[Attempt] = []
        size = 0
        for attempt in attempts:
            batch.append(attempt)
            size += len(attempt.planned.line)
            if len(batch) == _BATCH_ROWS or size >= _BATCH_BYTES:
                break
        if batch and self._hooks.prepare is not None:
            self._hooks.prepare([identity_of(attempt) for attempt in batch])
        return batch

    async def _rollout(self, attempt: Attempt) -> None:
        self._live.resident += 1
        self._counts.resident += 1
        try:
            ended = await self._admitted(attempt)
            if ended is not None:
                await self._keep(ended)
        finally:
            self._live.resident -= 1
            self._counts.resident -= 1
            self._places.release()

    async def _admitted(self, attempt: Attempt) -> EndedAttempt | None:
        """Run one attempt once there is room; None when the run was stopped before."""
        waiting, asked = self._live.waiting, time.perf_counter()
        waiting.begin(attempt, asked)
        try:
            async with self._admission:
                started_at, started = self._clock(), time.perf_counter()
                waiting.end(attempt, started)
                if self._metrics is not None:
                    swallowing(self._metrics.admission.record, (started - asked) * 1000)
                if self._stop.draining:
                    return None
                outcome = await self._active(attempt, started)
                took_s = time.perf_counter() - started
        finally:
            waiting.end(attempt, time.perf_counter())
        return EndedAttempt(attempt, outcome, Timing(started_at, took_s * 1000))

    async def _active(self, attempt: Attempt, started: float) -> Rewarded | Failure:
        """Run one attempt, counted as one that runs."""
        self._live.running.begin(attempt, started)
        self._live.active += 1
        self._counts.active += 1
        self._progress.running += 1
        try:
            return await self._outcome(attempt)
        finally:
            self._progress.running -= 1
            self._live.active -= 1
            self._counts.active -= 1
            self._live.running.end(attempt, time.perf_counter())

    async def _outcome(self, attempt: Attempt) -> Rewarded | Failure:
        with span("gym.rollout", attributes=_span_attributes(attempt), root=True) as made:
            outcome = await self._judged(attempt)
            _tell(made, outcome)
            return outcome

    async def _judged(self, attempt: Attempt) -> Rewarded | Failure:
        try:
            work = run_on_agent(self._client, attempt)
            return await self._stop.bounded(work, self._options.rollout_timeout_s)
        except Exception as error:
            logger.exception("rollout %s ended by a bug of the driver", attempt.rollout_id)
            return Failure("agent_error", f"the driver failed: {type(error).__name__}: {error}")

    async def _keep(self, ended: EndedAttempt) -> None:
        """Write the row of an ended attempt, then count it."""
        members = _row(ended, await self._attachments(ended))
        rewarded = isinstance(ended.outcome, Rewarded)
        await self._written("output" if rewarded else "failures", ended, members)
        self._count(ended.outcome)
        if rewarded:
            record_sizes(members)
        rollout_finished(ended.outcome.kind, ended.timing.latency_ms / 1000)
        if self._hooks.finished is not None:
            self._hooks.finished(ended, members)

    async def _written(self, kind: RowKind, ended: EndedAttempt, members: Members) -> None:
        """Return once the row is durable; the wait is counted, however it ends."""
        writing = self._live.writing
        writing.begin(ended, time.perf_counter())
        try:
            await self._sink.keep(kind, join_members(members))
        finally:
            writing.end(ended, time.perf_counter())

    async def _attachments(self, ended: EndedAttempt) -> Mapping[str, object]:
        if self._hooks.attach is None or self._stop.stopping:
            return {}
        try:
            return await self._hooks.attach(ended)
        except Exception:
            logger.exception("nothing could be attached to rollout %s", ended.attempt.rollout_id)
            return {}

    def _count(self, outcome: Rewarded | Failure) -> None:
        if isinstance(outcome, Rewarded):
            self._progress.finished += 1
            self._progress.reward_total += outcome.reward
            self._live.finished += 1
            self._live.reward_total += outcome.reward
        else:
            self._progress.failed[outcome.failure_class] += 1
            self._live.failed += 1


def _row(ended: EndedAttempt, attachments: Mapping[str, object]) -> Members:
    try:
        return ended.members(attachments)
    except (TypeError, ValueError):
        logger.exception("what was attached to rollout %s is no JSON", ended.attempt.rollout_id)
        return ended.members({})


def _span_attributes(attempt: Attempt) -> Mapping[str, str]:
    if tracer() is None:
        return {}
    return {ROLLOUT_ID: attempt.rollout_id, "gen_ai.agent.name": attempt.planned.agent}


def _tell(made: Span | NoSpan, outcome: Rewarded | Failure) -> None:
    """End the span of a rollout with how it ended, in the words of the metrics."""
    made.set(ROLLOUT_OUTCOME, outcome.kind)
    if isinstance(outcome, Rewarded):
        made.set(ROLLOUT_REWARD, outcome.reward)
    else:
        made.end(outcome.kind)


def _first(errors: ExceptionGroup[GymError]) -> GymError:
    """Return the first error of a group, however deep."""
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error
