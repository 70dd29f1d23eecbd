"""The driver's hooks while model calls are captured: clear before, attach after, flag what lacks.

Captures are read off the loop. What cannot be read is a gap on the row, never an error.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nemo_gym.capture.layout import CaptureName, Layout
from nemo_gym.ids import RolloutId, rollout_id_of_record
from nemo_gym.observability.model_calls import (
    await_model_call_capture_quiescence,
    clear_model_call_captures_for_rollouts,
    merge_model_call_capture_into_record,
    model_call_capture_dirs_from_config,
)
from nemo_gym.rollouts.collect import Hooks
from nemo_gym.rollouts.outcome import CAPTURE_KEY
from nemo_gym.rollouts.progress import Progress
from nemo_gym.rollouts.record import EndedAttempt
from nemo_gym.rollouts.unusable import output_unusable

__all__ = ["Evidence", "capture_dirs_of"]


def capture_dirs_of(tree: Mapping[str, object]) -> list[Path]:
    """Return where model calls are captured; empty when capture is off."""
    return model_call_capture_dirs_from_config(tree)


def _capture_names(folder: Path) -> Iterator[CaptureName]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if (name := Layout.parse(entry.name)) is not None:
                    yield name
    except OSError:  # not made yet
        return


def _has_bytes(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


class Evidence:
    """What is captured under a run's directories, for the rows of that run."""

    def __init__(self, capture_dirs: list[Path], progress: Progress) -> None:
        self.capture_dirs = capture_dirs
        self._progress = progress
        self._own_files = frozenset(
            name.rollout_id
            for folder in capture_dirs
            for name in _capture_names(folder)
            if name.writer is not None
        )

    def hooks(self) -> Hooks:
        """Return the driver's hooks."""
        return Hooks(prepare=self.clear, attach=self.attach)

    def clear(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Clear what an earlier run left under the ids of `rows`; raises `OutputUnusable`."""
        try:
            self._progress.replaced_captures += sum(map(self._is_captured, rows))
            clear_model_call_captures_for_rollouts(list(rows), self.capture_dirs)
        except OSError as error:
            mend = "make the capture directory writable, or give another"
            where = self.capture_dirs[0]
            raise output_unusable("old captures cannot be cleared", error, where, mend) from error

    async def attach(self, ended: EndedAttempt) -> Mapping[str, object]:
        """Return the capture of an attempt, once nothing is being written to it any more."""
        await await_model_call_capture_quiescence(ended.attempt.rollout_id, self.capture_dirs)
        record: dict[str, object] = ended.identity()
        known = set(record)
        record = await asyncio.to_thread(
            merge_model_call_capture_into_record, record, self.capture_dirs
        )
        self._count(record.get(CAPTURE_KEY))
        return {key: value for key, value in record.items() if key not in known}

    def is_used(self, rollout_id: RolloutId) -> bool:
        """Say whether there is a capture under an id already, by any of its writers."""
        shared = (Layout(folder).capture_file(rollout_id) for folder in self.capture_dirs)
        return rollout_id in self._own_files or any(path.exists() for path in shared)

    def _is_captured(self, row: Mapping[str, object]) -> bool:
        rollout_id = rollout_id_of_record(row)
        if rollout_id is None:
            return False
        return any(_has_bytes(Layout(f).capture_file(rollout_id)) for f in self.capture_dirs)

    def _count(self, capture: object) -> None:
        calls = capture.get("calls") if isinstance(capture, dict) else None
        number = len(calls) if isinstance(calls, list) else 0
        self._progress.captured_calls += number
        self._progress.without_calls += number == 0
