"""What earlier sessions of a run left, in; what is still to be done, out. No files, no clock.

Law: cut the files of a run anywhere, resume, and every `(task, rollout)` is there exactly once.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from nemo_gym.ids import ATTEMPT_INDEX_KEY, ROLLOUT_INDEX_KEY, TASK_INDEX_KEY, RolloutId
from nemo_gym.rollouts.lines import Members, count_of, text_of
from nemo_gym.rollouts.outcome import FAILURE_CLASS_KEY
from nemo_gym.rollouts.pairs import PairTable
from nemo_gym.rollouts.plan import PlannedRollout

__all__ = ["Attempt", "RunIndex", "pair_of"]

_MOST_ATTEMPTS = 200


@dataclass(frozen=True, slots=True)
class Attempt:
    """One rollout to dispatch, with the number of the attempt (0 is the first)."""

    planned: PlannedRollout
    attempt_index: int

    @property
    def rollout_id(self) -> RolloutId:
        """Return the id under which this attempt's model calls are captured."""
        return self.planned.rollout_id(self.attempt_index)


def pair_of(members: Members) -> tuple[int, int] | None:
    """Return the `(task, rollout)` that a line of a run names; None when it names none."""
    task = count_of(members.get(TASK_INDEX_KEY))
    rollout = count_of(members.get(ROLLOUT_INDEX_KEY))
    return None if task is None or rollout is None else (task, rollout)


def _attempt_of(members: Members) -> int:
    return count_of(members.get(ATTEMPT_INDEX_KEY)) or 0


class RunIndex:
    """What is known of each pair of a run: three bytes a rollout."""

    def __init__(self, max_attempts: int = 3) -> None:
        self.max_attempts = max_attempts
        """How often a pair may fail before it is left alone."""
        self._finished = PairTable()
        self._failures = PairTable()
        self._next_attempt = PairTable()
        self.finished = 0
        """Pairs with a row in the output."""
        self.exhausted = 0
        """Pairs that failed as often as allowed."""
        self.dropped_lines = 0
        """Lines of earlier sessions that a crash had damaged."""

    def add_finished(self, pair: tuple[int, int]) -> bool:
        """Note a row of the output; say whether it is the first of its pair."""
        if self._finished[pair]:
            return False
        self._finished[pair] = 1
        self.finished += 1
        return True

    def add_failure(self, pair: tuple[int, int], members: Members) -> None:
        """Note a row of the failures; rows of a pair come in the order of its attempts.

        One that the user cancelled is no attempt that failed, and one seen before counts once.
        """
        attempt = _attempt_of(members)
        if attempt < self._next_attempt[pair]:
            return
        self._next_attempt[pair] = attempt + 1
        if text_of(members.get(FAILURE_CLASS_KEY)) != "cancelled":
            self._failures[pair] += 1
            self.exhausted += self._failures[pair] == self.max_attempts

    def is_settled_by(self, pair: tuple[int, int], members: Members) -> bool:
        """Say whether a row of the failures is how its pair ended so far."""
        is_last = _attempt_of(members) + 1 == self._next_attempt[pair]
        return is_last and not self.is_finished(pair)

    def is_finished(self, pair: tuple[int, int]) -> bool:
        """Say whether the pair has a row in the output."""
        return self._finished[pair] != 0

    def pending(
        self,
        planned: Iterable[PlannedRollout],
        is_used: Callable[[RolloutId], bool] = lambda _: False,
    ) -> Iterator[Attempt]:
        """Yield what is still to be dispatched, with its attempt number.

        Left out are finished pairs and those that failed as often as allowed. `is_used` says
        whether an id has a capture already: a server may still write to it, so that a pair which
        was under way when the driver was killed takes the next free number.
        """
        for rollout in planned:
            pair = rollout.pair
            if self.is_finished(pair) or self._failures[pair] >= self.max_attempts:
                continue
            attempt = self._next_attempt[pair]
            while attempt < _MOST_ATTEMPTS and is_used(rollout.rollout_id(attempt)):
                attempt += 1
            yield Attempt(rollout, attempt)
