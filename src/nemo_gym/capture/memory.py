"""A store in memory: the twin of `CaptureStore` for tests, and for embedding without a disk."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field

from nemo_gym.capture.reading import StoredExchange, load_line
from nemo_gym.capture.row import Claim, EndedCall, Row, row_of
from nemo_gym.ids import RolloutId, parse_rollout_id
from nemo_gym.wire.json import as_object

__all__ = ["MemoryStore"]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _CountedClaim:
    counts: Counter[str]
    rollout_id: RolloutId
    released: bool = False

    def release(self) -> None:
        if not self.released:
            self.released = True
            self.counts[self.rollout_id] -= 1


@dataclass(slots=True)
class _Waiting:
    future: "Future[None] | asyncio.Future[Exception | None]"
    row: Row | EndedCall
    claim: Claim | None


@dataclass(slots=True)
class MemoryStore:
    """Keeps rows in lists. For one thread and one loop.

    With `held` true rows wait until `let_go` is called, as they would wait for a slow disk; with
    `error` set they fail with it.
    """

    held: bool = False
    error: Exception | None = None
    lines: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    incomplete: dict[str, str] = field(default_factory=dict)
    """Rollouts that lack a row, and why."""
    _claims: Counter[str] = field(default_factory=Counter)
    _waiting: list[_Waiting] = field(default_factory=list)

    def claim(self, rollout_id: RolloutId) -> Claim:
        """Say that a call of the rollout is under way."""
        self._claims[rollout_id] += 1
        return _CountedClaim(self._claims, rollout_id)

    def submit(self, row: Row, claim: Claim | None = None) -> "Future[None]":
        """Hand over a row."""
        future: Future[None] = Future()
        self._take(_Waiting(future, row, claim))
        return future

    def keep(
        self, call: EndedCall, claim: Claim | None = None
    ) -> "asyncio.Future[Exception | None]":
        """Hand over a call, with a future of the running loop."""
        future: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._take(_Waiting(future, call, claim))
        return future

    def mark_incomplete(
        self, rollout_id: RolloutId, reason: str, claim: Claim | None = None
    ) -> None:
        """Record that the rollout lacks a row."""
        self.incomplete[rollout_id] = reason
        if claim is not None:
            claim.release()

    def let_go(self) -> None:
        """Store, or fail, every row that waits."""
        waiting, self._waiting = self._waiting, []
        for item in waiting:
            self._store(item)

    def read(self, rollout_id: str) -> list[StoredExchange]:
        """Return the stored exchanges of a rollout in append order."""
        lines = self.lines.get(parse_rollout_id(rollout_id), ())
        return [as_object(load_line(line)) or {} for line in lines]

    def rollouts(self) -> list[str]:
        """Return the ids of the rollouts that have rows, sorted."""
        return sorted(rollout_id for rollout_id, lines in self.lines.items() if lines)

    def clear(self, rollout_ids: Iterable[str]) -> None:
        """Drop all rows and marks of these rollouts."""
        for rollout_id in rollout_ids:
            self.lines.pop(rollout_id, None)
            self.incomplete.pop(rollout_id, None)

    def is_pending(self, rollout_id: str) -> bool:
        """Say whether a call of the rollout is under way."""
        return self._claims[rollout_id] > 0

    def is_incomplete(self, rollout_id: str) -> bool:
        """Say whether a row of the rollout is known to be missing."""
        return rollout_id in self.incomplete

    def _take(self, item: _Waiting) -> None:
        self._waiting.append(item)
        if not self.held:
            self.let_go()

    def _store(self, item: _Waiting) -> None:
        error = self._kept(item.row)
        if item.claim is not None:
            item.claim.release()
        if not isinstance(item.future, Future):
            if not item.future.done():
                item.future.set_result(error)
        elif error is None:
            item.future.set_result(None)
        else:
            item.future.set_exception(error)

    def _kept(self, row: Row | EndedCall) -> Exception | None:
        """Add a row to its lines; return what went wrong."""
        rollout_id = row.rollout_id
        made = row if isinstance(row, Row) else row_of(row)
        if isinstance(made, Exception):
            logger.error("capture: a call of rollout %s is lost", rollout_id, exc_info=made)
            self.incomplete[rollout_id] = type(made).__name__
            return made
        if self.error is None:
            self.lines[rollout_id].append(made.line)
        else:
            self.incomplete[rollout_id] = str(self.error)
        return self.error
