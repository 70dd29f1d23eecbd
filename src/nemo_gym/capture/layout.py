"""Where things lie in a capture directory: names in, paths out, no I/O.

Only capture files are visible; what keeps them durable is under `.nemo_gym/`.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from nemo_gym.errors import InvalidRolloutId
from nemo_gym.ids import RolloutId, parse_rollout_id

__all__ = ["OWNER", "CaptureName", "Layout"]

OWNER = ".owner"
"""Behind a writer's name: the file that it holds locked for as long as it lives."""

_SUFFIX = ".capture.jsonl"
# Outside the grammar of rollout ids, so a name splits in one way only.
_OWN = "~"


class CaptureName(NamedTuple):
    """What the name of a capture file says."""

    rollout_id: RolloutId
    writer: str | None
    """The one writer of the file, where locks do not work; None for the shared file."""


@dataclass(frozen=True)  # no slots: what is cached needs a place
class Layout:
    """The paths in one capture directory."""

    directory: Path

    @cached_property
    def hidden(self) -> Path:
        """Everything that is not a capture file."""
        return self.directory / ".nemo_gym"

    @cached_property
    def logs(self) -> Path:
        """Commit logs: `<writer>.owner` and its segments `<writer>.<n>.log`."""
        return self.hidden / "log"

    @cached_property
    def claims(self) -> Path:
        """Files whose locked bytes are the calls under way."""
        return self.hidden / "claims"

    @cached_property
    def marks(self) -> Path:
        """One file for each rollout that lacks a row, named like it."""
        return self.hidden / "incomplete"

    @cached_property
    def tombstones(self) -> Path:
        """Which rows were cleared while a commit log still held them."""
        return self.hidden / "tombstones.jsonl"

    @cached_property
    def writers(self) -> Path:
        """One empty file for each writer with capture files of its own, named like it."""
        return self.hidden / "writers"

    @cached_property
    def damaged(self) -> Path:
        """What a repair took out of capture files."""
        return self.hidden / "damaged"

    @cached_property
    def folders(self) -> tuple[Path, ...]:
        """Every directory, parents first."""
        return (self.directory, self.hidden, self.logs, self.claims, self.marks)

    def capture_file(self, rollout_id: RolloutId, writer: str | None = None) -> Path:
        """Return the file that rows of a rollout go to."""
        own = "" if writer is None else f"{_OWN}{writer}"
        return self.directory / f"{rollout_id}{own}{_SUFFIX}"

    def owner(self, writer: str) -> Path:
        """Return the file that a writer holds locked for as long as it lives."""
        return self.logs / f"{writer}{OWNER}"

    def segment(self, writer: str, number: int) -> Path:
        """Return one segment of a writer's commit log."""
        return self.logs / f"{writer}.{number}.log"

    def mark(self, rollout_id: RolloutId) -> Path:
        """Return the file that says that the rollout lacks a row."""
        return self.marks / rollout_id

    @staticmethod
    def looks_like_capture(name: str) -> bool:
        """Say whether a name ends as those of capture files do."""
        return name.endswith(_SUFFIX)

    @staticmethod
    def parse(name: str) -> CaptureName | None:
        """Return what a file's name says; None when it is no capture file."""
        if not name.endswith(_SUFFIX):
            return None
        text, _, writer = name.removesuffix(_SUFFIX).partition(_OWN)
        try:
            return CaptureName(parse_rollout_id(text), writer or None)
        except InvalidRolloutId:
            return None
