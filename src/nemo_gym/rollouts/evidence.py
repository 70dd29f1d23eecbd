"""The driver's hooks while model calls are captured: clear before, attach after, flag what lacks.

Captures are read off the loop. What cannot be read is a gap on the row, never an error.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import RolloutId, rollout_id_of_record
from nemo_gym.observability.model_calls import (
    await_model_call_capture_quiescence,
    clear_model_call_captures_for_rollouts,
    merge_model_call_capture_into_record,
    model_call_capture_dirs_from_config,
)
from nemo_gym.rollouts.collect import Hooks
from nemo_gym.rollouts.named_captures import NamedCaptures
from nemo_gym.rollouts.outcome import CAPTURE_KEY
from nemo_gym.rollouts.progress import Progress
from nemo_gym.rollouts.record import EndedAttempt
from nemo_gym.rollouts.unusable import output_unusable

__all__ = ["Evidence", "capture_dirs_of"]


def capture_dirs_of(tree: Mapping[str, object]) -> list[Path]:
    """Return where model calls are captured; empty when capture is off."""
    return model_call_capture_dirs_from_config(tree)


class Evidence:
    """What is captured under a run's directories, for the rows of that run."""

    def __init__(
        self, capture_dirs: list[Path], progress: Progress, own: NamedCaptures | None = None
    ) -> None:
        """Take the captures that a run may replace in silence: those of what it overwrites."""
        self._own = own or NamedCaptures()
        self.capture_dirs = capture_dirs
        self._progress = progress
        self._stores = [CaptureStore(folder) for folder in capture_dirs]

    def hooks(self) -> Hooks:
        """Return the driver's hooks."""
        return Hooks(prepare=self.clear, attach=self.attach)

    def clear(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Clear what an earlier run left under the ids of `rows`; raises `OutputUnusable`."""
        try:
            self._progress.replaced_captures += sum(map(self._is_anothers, rows))
            clear_model_call_captures_for_rollouts(list(rows), self.capture_dirs)
        except OSError as error:
            mend = "make the capture directory writable, or give another"
            where = self.capture_dirs[0]
            raise output_unusable("old captures cannot be cleared", error, where, mend) from error

    async def attach(self, ended: EndedAttempt) -> Mapping[str, object]:
        """Return the capture of an attempt, once nothing is being written to it any more."""
        record: dict[str, object] = ended.identity()
        known = set(record)
        try:
            await await_model_call_capture_quiescence(ended.attempt.rollout_id, self.capture_dirs)
            await asyncio.to_thread(merge_model_call_capture_into_record, record, self.capture_dirs)
        finally:
            self._count(record.get(CAPTURE_KEY))
        return {key: value for key, value in record.items() if key not in known}

    def is_used(self, rollout_id: RolloutId) -> bool:
        """Say whether there is a capture under an id already, or a call that may become one."""
        return any(s.has_rollout(rollout_id) or s.is_pending(rollout_id) for s in self._stores)

    def _is_anothers(self, row: Mapping[str, object]) -> bool:
        """Say whether something is captured under the id of a row that is not the run's own."""
        rollout_id = rollout_id_of_record(row)
        if rollout_id is None:
            return False
        stores = [store for store in self._stores if store.has_rows(rollout_id)]
        return not all(self._is_own(store, rollout_id) for store in stores)

    def _is_own(self, store: CaptureStore, rollout_id: RolloutId) -> bool:
        if not self._own:
            return False
        with contextlib.suppress(OSError):  # clearing tells of it
            return store.has_row_named(rollout_id, lambda call: (rollout_id, call) in self._own)
        return False

    def _count(self, capture: object) -> None:
        calls = capture.get("calls") if isinstance(capture, dict) else None
        number = len(calls) if isinstance(calls, list) else 0
        self._progress.captured_calls += number
        self._progress.without_calls += number == 0
