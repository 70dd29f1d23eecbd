"""A prepared run from its first rollout to its last file: collect, settle, aggregate, sign off."""

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from nemo_gym.ids import RolloutId
from nemo_gym.rollouts.collect import CollectOptions, Collector, Hooks, StopSignal
from nemo_gym.rollouts.dispatch import RunClient
from nemo_gym.rollouts.environment import EnvironmentMetrics, ask_environment
from nemo_gym.rollouts.leftovers import settle_failures
from nemo_gym.rollouts.lines import Members
from nemo_gym.rollouts.manifest import write_manifest
from nemo_gym.rollouts.materialize import read_planned
from nemo_gym.rollouts.outcome import Rewarded, numbers_of
from nemo_gym.rollouts.paths import RunFiles
from nemo_gym.rollouts.prepare import PreparedRun
from nemo_gym.rollouts.progress import Progress
from nemo_gym.rollouts.record import EndedAttempt
from nemo_gym.rollouts.sink import RolloutSink
from nemo_gym.rollouts.summary import AgentReport, report_of, write_summary
from nemo_gym.rollouts.unusable import output_unusable
from nemo_gym.telemetry.live import live_counts

__all__ = ["RunReport", "collect_run", "progress_of"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunReport:
    """How a run ended."""

    status: Literal["completed", "interrupted"]
    planned: int
    finished: int
    """Rollouts with a reward, those of earlier sessions included."""
    failed: Mapping[str, int]
    """Rollouts without one, by failure class."""
    agents: tuple[AgentReport, ...]
    files: RunFiles
    wall_s: float
    """Of this session, in seconds."""
    warnings: tuple[str, ...]
    ran: int | None = None
    """Rollouts that ended in this session; None: not known."""
    capture_dir: Path | None = None
    """Where the run's model calls are captured; None while capture is off."""
    is_resumed: bool = False
    """Whether earlier sessions of the run are counted in."""

    @property
    def pending(self) -> int:
        """Return how many rollouts have neither a reward nor a failure."""
        return self.planned - self.finished - sum(self.failed.values())

    @property
    def exit_code(self) -> int:
        """Return 0 when all were rewarded, 1 when some failed, 130 when interrupted."""
        if self.status == "interrupted":
            return 130
        return 0 if self.finished == self.planned else 1


def progress_of(run: PreparedRun) -> Progress:
    """Return the counts of the session of `run` that has begun."""
    return Progress(
        total=run.manifest.inputs.rollouts - run.index.exhausted,
        done_before=run.index.finished,
        reward_before=run.aggregator.reward_total,
    )


async def collect_run(
    run: PreparedRun,
    client: RunClient,
    *,
    options: CollectOptions | None = None,
    stop: StopSignal | None = None,
    progress: Progress | None = None,
    collected: Callable[[], Awaitable[None]] | None = None,
) -> RunReport:
    """Run every rollout that is still to be done and bring the run's files to their end.

    `run` has begun. `collected` is awaited between the two, when no rollout is under way any more.
    Raises `OutputUnusable` when rows cannot be written; it can be resumed then.
    """
    began = time.monotonic()
    stop = stop or StopSignal()
    progress = progress or progress_of(run)
    live_counts().rollouts.begin(progress.total, progress.done_before, progress.reward_before)
    try:
        await _collect(run, client, options or CollectOptions(), stop, progress)
        if collected is not None:
            await collected()
        return await _finish(run, client, stop, progress, began)
    except BaseException as error:
        status = "failed" if isinstance(error, Exception) else "interrupted"
        run.manifest.end_session(status, time.time())
        with contextlib.suppress(OSError):
            write_manifest(run.files.manifest, run.manifest)
        raise


async def _collect(
    run: PreparedRun,
    client: RunClient,
    options: CollectOptions,
    stop: StopSignal,
    progress: Progress,
) -> None:
    hooks, is_used = _hooks(run, progress)
    planned = read_planned(run.files.materialized)
    attempts = run.index.pending(planned, is_used)
    with contextlib.closing(planned), _sink(run.files) as sink:
        await sink.ready()
        collector = Collector(client, sink, progress, options=options, hooks=hooks, stop=stop)
        await collector.run(attempts)


def _hooks(run: PreparedRun, progress: Progress) -> tuple[Hooks, Callable[[RolloutId], bool]]:
    def finished(ended: EndedAttempt, members: Members) -> None:
        planned = ended.attempt.planned
        if isinstance(ended.outcome, Rewarded):
            run.index.add_finished(planned.pair)
            numbers = numbers_of(members, planned.agent, planned.task_index, run.row_keys)
            run.aggregator.add(numbers)
        else:
            run.index.add_failure(planned.pair, members)

    if run.capture_dir is None:
        return Hooks(finished=finished), lambda _: False
    # Capture's room is imported only by a run that captures.
    from nemo_gym.rollouts.evidence import Evidence  # noqa: PLC0415

    evidence = Evidence([run.capture_dir], progress, run.overwritten)
    hooks = replace(evidence.hooks(), finished=finished)
    return hooks, evidence.is_used if run.is_resumed else (lambda _: False)


@contextlib.contextmanager
def _sink(files: RunFiles) -> Generator[RolloutSink]:
    sink = RolloutSink(files.output, files.failures)
    try:
        yield sink
    finally:
        sink.close()


async def _finish(
    run: PreparedRun,
    client: RunClient,
    stop: StopSignal,
    progress: Progress,
    began: float,
) -> RunReport:
    try:
        failed = settle_failures(run.files, run.index, run.aggregator)
        agents = [
            report_of(summary, await _environment(run, client, summary.agent, stop), run.row_keys)
            for summary in run.aggregator.summaries()
        ]
        write_summary(run.files.aggregate, agents)
        status = _signed_off(run, failed, stop)
    except OSError as error:
        mend = "make room or permit writing there, then go on with --resume"
        path = run.files.output
        raise output_unusable("the results cannot be written", error, path, mend) from error
    return RunReport(
        status=status,
        planned=run.manifest.inputs.rollouts,
        finished=run.index.finished,
        failed=failed,
        agents=tuple(agents),
        files=run.files,
        wall_s=time.monotonic() - began,
        warnings=_warnings(run, progress),
        ran=progress.ended,
        capture_dir=run.capture_dir,
        is_resumed=run.is_resumed,
    )


def _signed_off(
    run: PreparedRun, failed: Counter[str], stop: StopSignal
) -> Literal["completed", "interrupted"]:
    """Complete the manifest; return how the run ended."""
    planned = run.manifest.inputs.rollouts
    pending = planned - run.index.finished - failed.total()
    status: Literal["completed", "interrupted"] = (
        "interrupted" if stop.draining and (pending or failed["cancelled"]) else "completed"
    )
    run.manifest.counts = {
        "planned": planned,
        "finished": run.index.finished,
        "failed": failed.total(),
        "failed_by_class": dict(failed),
        "pending": pending,
    }
    run.manifest.end_session(status, time.time())
    write_manifest(run.files.manifest, run.manifest)
    return status


async def _environment(
    run: PreparedRun, client: RunClient, agent: str, stop: StopSignal
) -> EnvironmentMetrics:
    if stop.stopping:
        return EnvironmentMetrics(notes=("the run was stopped: the environment was not asked",))
    return await ask_environment(client, agent, run.files.output)


def _warnings(run: PreparedRun, progress: Progress) -> tuple[str, ...]:
    return (*_session_warnings(run), *_capture_warnings(run, progress))


def _session_warnings(run: PreparedRun) -> Iterator[str]:
    if not run.planned.rollouts:
        yield "nothing was run: --limit is 0"
    dropped, exhausted = run.index.dropped_lines, run.index.exhausted
    if dropped:
        yield f"lines dropped that a crash had damaged: {dropped}"
    if exhausted:
        yield (
            f"rollouts left alone after {run.index.max_attempts} failures: {exhausted}; "
            "allow more with --max-rollout-attempts"
        )


def _capture_warnings(run: PreparedRun, progress: Progress) -> Iterator[str]:
    if run.capture_dir is None:
        return
    if progress.replaced_captures:
        # Those of a run that came after, or of rollouts that were under way when it was killed.
        unnamed = " that the overwritten output does not name," * (run.request.mode == "overwrite")
        yield (
            f"captures{unnamed} of an earlier run under the same rollout ids were replaced in "
            f"{run.capture_dir}: {progress.replaced_captures}; "
            "to keep those of several runs, give each a directory of its own"
        )
    if progress.without_calls and not progress.captured_calls:
        servers_dir = run.manifest.config.get("model_call_capture_dir")
        yield (
            "CAPTURE IS ON, BUT NOT ONE MODEL CALL WAS CAPTURED. "
            f"Rollouts were looked up in {run.capture_dir}; "
            f"the model servers were told to write to {servers_dir}. "
            "Do agents call a model server of this run, under the /ng-rollout/<id>/ prefix, and is "
            "that the same directory on every machine?"
        )
    elif progress.without_calls:
        yield f"rollouts without one captured model call: {progress.without_calls}"
