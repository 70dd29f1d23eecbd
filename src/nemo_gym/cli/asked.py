"""What was asked of `gym eval run` beside its configuration."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Asked"]


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of the command that are no configuration."""

    agent: str | None
    inputs: tuple[str, ...]
    output: Path
    limit: int | None
    num_repeats: int
    concurrency: int
    rollout_timeout: float
    max_rollout_attempts: int
    workers: int
    resume: bool
    overwrite: bool
    no_serve: bool
    one_process_each: bool
    as_json: bool

    @property
    def mode(self) -> Literal["new", "resume", "overwrite"]:
        """Return what is done with an output that is there."""
        if self.resume:
            return "resume"
        return "overwrite" if self.overwrite else "new"
