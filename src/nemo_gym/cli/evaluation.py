"""One evaluation from its plan to its report: servers found or started, signals, progress."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from nemo_gym.cli.asked import Asked
from nemo_gym.cli.counted import counted
from nemo_gym.cli.driver_entry import connected_driver
from nemo_gym.cli.eval_report import print_report, report_document
from nemo_gym.cli.interrupts import Interrupts
from nemo_gym.cli.output import for_whoever_reads, print_json
from nemo_gym.cli.progress import ProgressDisplay
from nemo_gym.config.nearest import did_you_mean, nearest
from nemo_gym.config.resolved import RunConfig
from nemo_gym.errors import Doubt, ServerDied, TransportError, UserMistake
from nemo_gym.rollouts.collect import CollectOptions, StopSignal
from nemo_gym.rollouts.prepare import PreparedRun, RunRequest, prepare_run
from nemo_gym.rollouts.progress import Progress
from nemo_gym.rollouts.run import RunReport, collect_run, progress_of
from nemo_gym.runtime.connect import read_head
from nemo_gym.runtime.session import RunningServers, RunOptions, open_run
from nemo_gym.runtime.sharing import Sharing
from nemo_gym.runtime.supervise import until_dead
from nemo_gym.runtime.told import as_one
from nemo_gym.telemetry.diagnosis import UNMEASURED
from nemo_gym.telemetry.figures import FigureSnapshot, from_json, from_object
from nemo_gym.telemetry.run_view import diagnose_run

__all__ = ["evaluate_until_ended"]

_AGENTS = "responses_api_agents"
_SHORT_RUN_S = 5.0
_PARAMS = "responses_create_params"


async def evaluate_until_ended(asked: Asked, config: RunConfig, inputs: tuple[Path, ...]) -> int:
    """Evaluate until done or told to stop; print the report and return the exit code."""
    display = ProgressDisplay(quiet=asked.as_json)
    evaluation = _Evaluation(asked, config, inputs, display)
    task = asyncio.ensure_future(evaluation.report())
    stopping = _Stopping(task, evaluation, display)
    with Interrupts(stopping.answer, stopping.is_last):
        try:
            report = await task
        except asyncio.CancelledError:
            raise click.Abort from None
        with for_whoever_reads():
            if asked.as_json:
                print_json(report_document(report))
            else:
                print_report(report, evaluation.diagnosis, evaluation.log_dir)
    for warning in report.warnings:
        click.secho(f"warning: {warning}", fg="yellow", bold=True, err=True)
    if evaluation.death is not None:
        raise evaluation.death
    return report.exit_code


@dataclass(slots=True)
class _Evaluation:
    asked: Asked
    config: RunConfig
    inputs: tuple[Path, ...]
    display: ProgressDisplay
    stop: StopSignal = field(default_factory=StopSignal)
    progress: Progress | None = None
    """None until rollouts begin."""
    diagnosis: str | None = None
    """What slowed the run down, in words; None where nothing did, or it was too short to tell."""
    log_dir: Path | None = None
    """Where servers and driver log; None for servers of another process."""
    death: ServerDied | None = None
    """The server whose end ended the run."""

    async def report(self) -> RunReport:
        """Prepare the run, have its servers, collect its rollouts."""
        if self.asked.no_serve:
            said = self.display.say
            async with connected_driver(self.config, self.asked.output, said) as running:
                tree = {**running.tree, _PARAMS: self._params(running.tree)}
                with contextlib.closing(
                    self._prepared(tree, running.agents, running.misfits)
                ) as run:
                    return await self._collected(run, running)
        agents = [server.name for server in self.config.servers if server.kind == _AGENTS]
        own = self._prepared(self.config.hidden(), agents, self.config.misfits)
        with contextlib.closing(own) as run:
            options = RunOptions(
                workers=self.asked.workers,
                one_process_each=self.asked.one_process_each,
                output=str(run.files.output.absolute()),
            )
            starting = f"starting {counted(len(self.config.servers), 'server')}"
            async with contextlib.AsyncExitStack() as stack:
                async with self.display.waiting(starting):
                    running = await stack.enter_async_context(
                        open_run(self.config, options, self.display.say)
                    )
                _refuse_problems(running, self.display.say)
                return await self._collected(run, running)

    def _params(self, running: Mapping[str, object]) -> dict[str, object]:
        """Return the parameters laid over every row: those of the servers' run, then one's own."""
        theirs, own = running.get(_PARAMS), self.config.tree.get(_PARAMS)
        return {
            **(theirs if isinstance(theirs, Mapping) else {}),
            **(own if isinstance(own, Mapping) else {}),
        }

    def _prepared(
        self,
        tree: Mapping[str, object],
        agents: list[str],
        misfits: Mapping[str, UserMistake],
    ) -> PreparedRun:
        asked = self.asked
        if asked.agent is not None and asked.agent not in agents:
            raise UserMistake(
                f"there is no agent {asked.agent!r}{did_you_mean(nearest(asked.agent, agents))}",
                where="--agent",
                mend=f"use one of {', '.join(sorted(agents))}" if agents else "configure an agent",
            )
        request = RunRequest(
            self.inputs,
            asked.output,
            agent=asked.agent,
            limit=asked.limit,
            num_repeats=asked.num_repeats,
            mode=asked.mode,
            max_rollout_attempts=asked.max_rollout_attempts,
        )
        return prepare_run(request, tree, agents, capture_dir=_capture_dir(tree), misfits=misfits)

    async def _collected(self, run: PreparedRun, running: RunningServers) -> RunReport:
        """Collect while the servers live; the death of one for good ends the run."""
        await asyncio.to_thread(run.begin)
        if run.is_resumed:
            done, planned = run.index.finished, run.planned.rollouts
            self.display.say(f"resuming: {done:,} of {planned:,} rollouts are done")
        self.progress, self.log_dir = progress_of(run), running.log_dir
        options = CollectOptions(self.asked.concurrency, self.asked.rollout_timeout)
        stretch = await _Stretch.begin(running)

        async def collected() -> None:
            # Computing the metrics holds loops too, and is no part of what rollouts waited for.
            self.diagnosis = await stretch.diagnosis()

        collecting = asyncio.ensure_future(
            collect_run(
                run,
                running.client,
                options=options,
                stop=self.stop,
                progress=self.progress,
                collected=collected,
            )
        )
        watching = asyncio.ensure_future(until_dead(running, self.display.say))
        looking = asyncio.ensure_future(stretch.sharing.watch())
        try:
            async with self.display.showing(self.progress):
                await asyncio.wait({collecting, watching}, return_when=asyncio.FIRST_COMPLETED)
                if not collecting.done():
                    self.stop.stop()
                report = await collecting
            if watching.done():
                self.death = watching.result()
            return report
        finally:
            collecting.cancel()
            watching.cancel()
            looking.cancel()
            await asyncio.gather(collecting, watching, looking, return_exceptions=True)


@dataclass(slots=True)
class _Stretch:
    """The time in which rollouts run, to say what slowed it down."""

    running: RunningServers
    before: list[FigureSnapshot]
    """What was before is no part of the run: the start of its servers, or other runs."""
    began: float
    sharing: Sharing = field(default_factory=Sharing)

    @classmethod
    async def begin(cls, running: RunningServers) -> "_Stretch":
        before = [replace(one, rollouts=None) for one in await _figures(running)]
        return cls(running, before, time.monotonic())

    async def diagnosis(self) -> str | None:
        """Return what slowed it down until now; None where nothing did, or it was short."""
        if time.monotonic() - self.began < _SHORT_RUN_S:
            return None
        now = await _figures(self.running)
        found = diagnose_run(now, self.before, self.sharing.others)
        if found.bottleneck == "none":
            return None
        # What was not measured was not ruled out either.
        measured = any(one.loop is not None for one in now)
        return str(found) if measured else f"{found} ({UNMEASURED})"


async def _figures(running: RunningServers) -> list[FigureSnapshot]:
    """Return the figures so far of all processes of the run; none where none are told."""
    if running.figures is None:
        return []
    try:
        _, body = await running.figures()
        return [*from_json(body), *await _servers_elsewhere(running)]
    except ValueError:
        return []


async def _servers_elsewhere(running: RunningServers) -> list[FigureSnapshot]:
    """Return the figures so far of servers that another process runs; none where none are told."""
    if running.log_dir is not None:
        return []
    try:
        told = from_object(await read_head(running.head_url, "/figures"))
        return [replace(one, rollouts=None) for one in told]  # another run's, where it drives too
    except (TransportError, ValueError):
        return []


def _capture_dir(tree: Mapping[str, object]) -> Path | None:
    """Return where model calls are captured; None while capture is off."""
    folder = tree.get("model_call_capture_dir")
    return Path(folder) if tree.get("observability_enabled") and isinstance(folder, str) else None


def _refuse_problems(running: RunningServers, say: Callable[[str], None]) -> None:
    mistakes = [problem for problem in running.problems if not isinstance(problem, Doubt)]
    if mistakes:
        raise as_one(mistakes)
    for problem in running.problems:
        say(f"warning: {problem}")


class _Stopping:
    """What each signal does to an evaluation."""

    def __init__(
        self, task: "asyncio.Future[RunReport]", evaluation: _Evaluation, display: ProgressDisplay
    ) -> None:
        self._task = task
        self._evaluation = evaluation
        self._display = display

    def is_last(self, number: int) -> bool:
        """Say whether nothing is left to finish after a signal."""
        evaluation = self._evaluation
        first = number == signal.SIGINT and not evaluation.stop.draining
        return evaluation.progress is None or not first

    def answer(self, number: int) -> None:
        """Ctrl-C once: finish what runs. Twice, or any other signal: stop it. Then: leave."""
        stop, progress = self._evaluation.stop, self._evaluation.progress
        if progress is None or stop.stopping:
            self._task.cancel()
        elif number == signal.SIGINT and not stop.draining:
            self._display.say(
                f"finishing {progress.running} rollouts under way; Ctrl-C again stops them"
            )
            stop.drain()
        else:
            # Whoever sends SIGTERM, or closes the terminal, will not wait for an hour.
            told = "" if number == signal.SIGINT else "told to end: "
            self._display.say(f"{told}stopping now")
            stop.stop()
