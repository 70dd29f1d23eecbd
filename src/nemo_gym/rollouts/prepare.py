"""Everything of a run that happens before its first rollout: checks, plan, leases, manifest.

What the user asked for in, a `PreparedRun` out; or one `UserMistake`, with nothing changed. The
run's own files are touched by `begin` only, so that a run whose servers do not start leaves none.
"""

import contextlib
import logging
import time
import uuid
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from nemo_gym.config.problems import one_a_line
from nemo_gym.errors import OutputExists, OutputUnusable, ResumeRefused, UserMistake
from nemo_gym.files.disk import REAL_DISK
from nemo_gym.rollouts.aggregate import Aggregator
from nemo_gym.rollouts.changes import changes_since, moves_since
from nemo_gym.rollouts.lease import CaptureIds, Holder, hold_capture_ids, hold_output
from nemo_gym.rollouts.leftovers import index_run
from nemo_gym.rollouts.manifest import (
    Inputs,
    Manifest,
    Selection,
    read_manifest,
    utc_text,
    write_manifest,
)
from nemo_gym.rollouts.materialize import Materialized, materialize
from nemo_gym.rollouts.named_captures import NamedCaptures, captures_named_by
from nemo_gym.rollouts.paths import RunFiles
from nemo_gym.rollouts.plan import Planner, PlanRequest
from nemo_gym.rollouts.resume import RunIndex
from nemo_gym.rollouts.rows import check_readable, read_rows
from nemo_gym.rollouts.unusable import output_unusable
from nemo_gym.telemetry.instruments import swallowing
from nemo_gym.telemetry.observer import driver_metrics
from nemo_gym.wire.json import as_object, dumps, loads_strictly

__all__ = ["PreparedRun", "RunRequest", "prepare_run"]

logger = logging.getLogger(__name__)

_PARAMS = "responses_create_params"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the user asked for."""

    inputs: tuple[Path, ...]
    output: Path
    agent: str | None = None
    limit: int | None = None
    num_repeats: int = 1
    mode: Literal["new", "resume", "overwrite"] = "new"
    """`resume` goes on where a run stopped, or begins one; `overwrite` throws an old one away."""
    max_rollout_attempts: int = 3
    """How often a rollout may fail before `resume` leaves it alone."""


@dataclass(slots=True)
class PreparedRun:
    """A run that can begin; `close` lets go of what it holds."""

    request: RunRequest
    files: RunFiles
    manifest: Manifest
    capture_dir: Path | None
    planned: Materialized
    planning_ms: float
    """How long it took to plan and materialise, in ms."""
    index: RunIndex
    """What earlier sessions left, once the run has begun."""
    moves: list[str] = field(default_factory=list[str])
    """How models are reached otherwise than in the session before, for the manifest."""
    aggregator: Aggregator = field(default_factory=Aggregator)
    """Finished rollouts, those of earlier sessions once the run has begun."""
    overwritten: NamedCaptures = field(default_factory=NamedCaptures)
    """What the output that was overwritten named of its captures, once the run has begun."""
    _held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, repr=False)

    @property
    def row_keys(self) -> frozenset[str]:
        """Return the top-level keys that rows carried; they are not metrics."""
        return frozenset(self.manifest.row_keys)

    @property
    def is_resumed(self) -> bool:
        """Return whether the session that has begun is not the first of its run."""
        return len(self.manifest.sessions) > 1

    def begin(self) -> None:
        """Put the run's files in place, the manifest first, and read what earlier sessions left.

        Raises `OutputUnusable`.
        """
        with _output_errors(self.files):
            if self.request.mode == "overwrite":
                if self.capture_dir is not None:
                    self.overwritten = captures_named_by(self.files)
                for path in self.files.all():
                    REAL_DISK.unlink(path)
            self.manifest.begin_session(time.time(), self.moves)
            self.manifest.counts = {"planned": self.planned.rollouts}
            write_manifest(self.files.manifest, self.manifest)
            REAL_DISK.rename(self.planned.scratch, self.files.materialized)
            index_run(self.files, self.index, self.aggregator, self.row_keys)
        metrics = driver_metrics()
        if metrics is not None:
            swallowing(metrics.materialize.record, self.planning_ms)

    def close(self) -> None:
        """Let other runs have the files and the capture ids; doing so twice is no error."""
        self._held.close()


def prepare_run(
    request: RunRequest,
    tree: Mapping[str, object],
    agents: Iterable[str] | None = None,
    *,
    capture_dir: Path | None = None,
    misfits: Mapping[str, UserMistake] | None = None,
) -> PreparedRun:
    """Check everything, plan every rollout, and hold what only one run may have.

    `tree` is the resolved configuration, secrets hidden; `agents` are those that exist, None when
    that is not known; `capture_dir` is where model calls are captured; `misfits` are agents that
    cannot work as things are configured, and why. Raises `UserMistake`.
    """
    check_readable(request.inputs)
    files = _files_of(request)
    started = time.perf_counter()
    with contextlib.ExitStack() as held:
        holder = Holder.here(files.output.absolute(), utc_text(time.time()))
        held.enter_context(hold_output(files.lock, holder))
        with _output_errors(files):
            old = _earlier_run(files, request)
        planner = Planner(_plan_request(request, tree, agents, misfits or {}))
        with _output_errors(files):
            rows, prefix = read_rows(request.inputs), None if old is None else old.inputs.tasks
            planned = materialize(rows, planner, files.materialized, prefix=prefix)
        held.callback(REAL_DISK.unlink, planned.scratch)
        if not planned.rollouts and request.limit != 0:
            raise UserMistake(
                "the input has no rows",
                where=one_a_line(map(str, request.inputs)),
                mend="give --input a JSONL file with a task on every line",
            )
        manifest = _manifest(request, tree, planner, planned, capture_dir)
        moves = [] if old is None else _go_on(old, manifest, planned, files)
        if capture_dir is not None:
            ids = CaptureIds(planner.task_range, frozenset(planner.explicit_ids))
            lease = hold_capture_ids(capture_dir, ids, holder)
            held.callback(lambda: lease.close() if lease else None)
        planning_ms = (time.perf_counter() - started) * 1000
        index = RunIndex(request.max_rollout_attempts)
        run = PreparedRun(request, files, manifest, capture_dir, planned, planning_ms, index, moves)
        run._held = held.pop_all()  # noqa: SLF001 - made here
        return run


def _files_of(request: RunRequest) -> RunFiles:
    """Return the files of the run; raises `OutputUnusable` where they cannot be meant."""
    if not request.output.name or request.output.name == "..":
        raise OutputUnusable(
            f"the output {str(request.output)!r} is no name of a file",
            where="--output",
            mend="give the path of a file, such as results/x.jsonl",
        )
    files = RunFiles(request.output)
    own = {path.resolve() for path in files.all()}
    for path in request.inputs:
        if path.resolve() in own:
            raise OutputUnusable(
                f"the input {path.name} is a file that the run itself would write",
                where=str(path),
                mend="give another --output",
            )
    return files


def _earlier_run(files: RunFiles, request: RunRequest) -> Manifest | None:
    """Return the manifest of the run that is resumed; None when a run begins."""
    present = [path for path in files.all() if path.exists()]
    if request.mode == "overwrite" or not present:
        return None
    if request.mode == "new":
        raise OutputExists(
            f"the output is there already: {present[0].name}",
            where=str(present[0]),
            mend="go on with --resume, start anew with --overwrite, or give another --output",
        )
    old = read_manifest(files.manifest)
    kept = [path for path in (files.output, files.failures) if path in present]
    if old is None and any(path.stat().st_size for path in kept):
        raise ResumeRefused(
            f"there is no {files.manifest.name}, so nobody can say what the output was made of",
            where=str(files.output),
            mend="start anew with --overwrite, or give another --output",
        )
    return old


def _plan_request(
    request: RunRequest,
    tree: Mapping[str, object],
    agents: Iterable[str] | None,
    misfits: Mapping[str, UserMistake],
) -> PlanRequest:
    params = tree.get(_PARAMS)
    return PlanRequest(
        agent=request.agent,
        agents=None if agents is None else frozenset(agents),
        misfits=misfits,
        num_repeats=request.num_repeats,
        limit=request.limit,
        params=params if isinstance(params, Mapping) else {},
    )


def _manifest(
    request: RunRequest,
    tree: Mapping[str, object],
    planner: Planner,
    planned: Materialized,
    capture_dir: Path | None,
) -> Manifest:
    files = RunFiles(request.output)
    inputs = Inputs(
        tuple(map(str, request.inputs)), planned.tasks, planned.rollouts, planned.sha256
    )
    return Manifest(
        run_id=uuid.uuid4().hex,
        inputs=inputs,
        selection=Selection(request.agent, request.limit, request.num_repeats),
        # As it is read back, so that an old one can be compared with a new one.
        config=as_object(loads_strictly(dumps(dict(tree), _plain))) or {},
        row_keys=tuple(sorted(planner.row_keys)),
        capture_dir=None if capture_dir is None else str(capture_dir),
        files={
            "output": files.output.name,
            "failures": files.failures.name,
            "materialized_inputs": files.materialized.name,
            "aggregate_metrics": files.aggregate.name,
        },
    )


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _go_on(old: Manifest, new: Manifest, planned: Materialized, files: RunFiles) -> list[str]:
    """Make `new` the manifest of the same run; return how models are reached otherwise now.

    Raises `ResumeRefused` where its rollouts would be unlike those that there are.
    """
    changes = changes_since(old, new, planned.prefix_sha256)
    if changes:
        raise ResumeRefused(
            "the run cannot go on, because this changed since it began:\n    "
            + "\n    ".join(changes),
            where=str(files.manifest),
            mend="undo the change, start anew with --overwrite, or give another --output",
        )
    new.run_id, new.sessions = old.run_id, old.sessions
    return moves_since(old, new)


@contextlib.contextmanager
def _output_errors(files: RunFiles) -> Generator[None]:
    try:
        yield
    except OSError as error:
        mend = "make room or permit writing there, or give another --output"
        raise output_unusable("the output cannot be written", error, files.output, mend) from error
