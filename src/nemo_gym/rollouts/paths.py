"""The files of one run: the output's path in, the path of every file beside it out."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["RunFiles"]

_SUFFIXES = {".jsonl", ".ndjson", ".json"}


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Every file of a run carries the output's name."""

    output: Path
    """Finished rollouts, one a line, in completion order."""

    def beside(self, ending: str) -> Path:
        """Return the path beside the output: its name without `.jsonl`, then `ending`."""
        known = self.output.suffix in _SUFFIXES
        return self.output.with_name((self.output.stem if known else self.output.name) + ending)

    @property
    def materialized(self) -> Path:
        """Return where every planned rollout's row is kept, as it is sent to its agent."""
        return self.beside("_materialized_inputs.jsonl")

    @property
    def failures(self) -> Path:
        """Return where rollouts are kept that ended without a reward."""
        return self.beside("_failures.jsonl")

    @property
    def retried(self) -> Path:
        """Return where failures are kept that a later attempt replaced."""
        return self.beside("_retried_failures.jsonl")

    @property
    def aggregate(self) -> Path:
        """Return where the metrics of each agent are kept."""
        return self.beside("_aggregate_metrics.json")

    @property
    def manifest(self) -> Path:
        """Return where it is said what was run, how, and how far it came."""
        return self.beside("_run.json")

    @property
    def lock(self) -> Path:
        """Return the file that a live run holds locked."""
        return self.beside("_run.lock")

    def all(self) -> tuple[Path, ...]:
        """Return every file of the run but the lock."""
        return (
            self.output,
            self.materialized,
            self.failures,
            self.retried,
            self.aggregate,
            self.manifest,
        )
