"""Outputs of several runs in, the metrics of each agent over all of them out.

Two rows belong to one task when their task index and their input row are the same: shards of one
input file stay apart, and further runs of the same rows add repeats. Memory holds a few numbers a
rollout.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nemo_gym.errors import UserMistake
from nemo_gym.rollouts.aggregate import REWARD, Aggregator
from nemo_gym.rollouts.environment import EnvironmentMetrics
from nemo_gym.rollouts.leftovers import agent_of, read_lines
from nemo_gym.rollouts.lines import Members, join_members, number_of, text_of
from nemo_gym.rollouts.manifest import read_manifest
from nemo_gym.rollouts.outcome import FAILURE_CLASS_KEY, numbers_of
from nemo_gym.rollouts.paths import RunFiles
from nemo_gym.rollouts.plan import AGENT_REF_KEY
from nemo_gym.rollouts.resume import pair_of
from nemo_gym.rollouts.summary import AgentReport, report_of

__all__ = ["MergedRuns", "merge_outputs"]


@dataclass(frozen=True, slots=True)
class MergedRuns:
    """What several outputs amount to."""

    outputs: tuple[Path, ...]
    agents: tuple[AgentReport, ...]
    warnings: tuple[str, ...]


class _Tasks:
    """Numbers the tasks of several runs."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, bytes], int] = {}

    def of(self, task_index: int, digest: bytes) -> int:
        return self._numbers.setdefault((task_index, digest), len(self._numbers))


def merge_outputs(outputs: Sequence[Path]) -> MergedRuns:
    """Return the metrics over all rollouts of `outputs`; a file given twice counts once.

    Raises `UserMistake` for an output that cannot be read, or that is none.
    """
    distinct = tuple({path.resolve(): path for path in outputs}.values())
    aggregator, tasks, warnings = Aggregator(), _Tasks(), list[str]()
    for output in distinct:
        if output.is_dir():
            raise UserMistake(
                f"the output {output} is a directory",
                where=str(output),
                mend="give the --output of a run",
            )
        try:
            warnings += _add(RunFiles(output), aggregator, tasks)
        except OSError as error:
            raise UserMistake(
                f"the output cannot be read: {error.strerror}",
                where=str(error.filename or output),
                mend="give the --output of a run",
            ) from error
    if not aggregator.summaries():
        warnings.append("there are no rollouts in what was given")
    reports = [report_of(summary, EnvironmentMetrics()) for summary in aggregator.summaries()]
    return MergedRuns(distinct, tuple(reports), tuple(warnings))


def _add(files: RunFiles, aggregator: Aggregator, tasks: _Tasks) -> list[str]:
    """Add the rollouts of one run; return what a reader must know."""
    manifest = read_manifest(files.manifest)
    row_keys = frozenset(manifest.row_keys) if manifest is not None else frozenset()
    digests = _input_digests(files.materialized)
    damaged = counted = 0
    for members in read_lines(files.output):
        pair = None if members is None else pair_of(members)
        if members is None or pair is None or number_of(members.get(REWARD)) is None:
            damaged += 1
            continue
        counted += 1
        task = tasks.of(pair[0], digests.get(pair[0], b""))
        aggregator.add(numbers_of(members, agent_of(members), task, row_keys))
    if not counted and manifest is None:
        raise _no_output(files.output)
    if files.failures.exists():
        for members in read_lines(files.failures):
            if members is not None:
                failure_class = text_of(members.get(FAILURE_CLASS_KEY)) or "agent_error"
                aggregator.add_failure(agent_of(members), failure_class)
    warnings = []
    if damaged:
        warnings.append(f"{files.output}: lines left out that are no rollouts: {damaged}")
    if manifest is not None and manifest.status != "completed":
        warnings.append(f"{files.output}: the run is {manifest.status}, not completed")
    return warnings


def _no_output(path: Path) -> UserMistake:
    """Return the mistake of giving a file in which there is no rollout and that no run has made."""
    run = next((run for run in _runs_with(path) if run.exists()), None)
    return UserMistake(
        f"there are no rollouts in {path}",
        where=str(path),
        mend=f"give the --output of {'a run' if run is None else f'its run: {run}'}",
    )


def _runs_with(path: Path) -> Iterator[Path]:
    """Yield the outputs beside which `path` may lie, most likely first."""
    for output in sorted(path.parent.glob("*.jsonl"), key=lambda each: len(each.name)):
        if path in RunFiles(output).all()[1:]:
            yield output


def _input_digests(materialized: Path) -> dict[int, bytes]:
    """Return a digest of the input row of each task; empty where the inputs are gone."""
    digests: dict[int, bytes] = {}
    if materialized.exists():
        for members in read_lines(materialized):
            pair = None if members is None else pair_of(members)
            if members is not None and pair is not None and pair[0] not in digests:
                row = join_members(_brought_along(members))
                digests[pair[0]] = hashlib.blake2b(row, digest_size=8).digest()
    return digests


def _brought_along(members: Members) -> Members:
    return {
        key: raw
        for key, raw in members.items()
        if key != AGENT_REF_KEY and not key.startswith("_ng_")
    }
