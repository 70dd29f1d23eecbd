"""What a run has done so far, in a few numbers that anyone may read at any time. No I/O."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Progress"]


@dataclass(slots=True)
class Progress:
    """Counts of one session, bumped by the driver."""

    total: int
    """Rollouts of the run."""
    done_before: int = 0
    """Rollouts that earlier sessions finished."""
    reward_before: float = 0.0
    """Their rewards, added up."""
    running: int = 0
    finished: int = 0
    """Rollouts of this session that ended with a reward."""
    reward_total: float = 0.0
    failed: Counter[str] = field(default_factory=Counter[str])
    """Rollouts of this session that ended without one, by failure class."""
    captured_calls: int = 0
    """Model calls attached to the rollouts of this session."""
    without_calls: int = 0
    """Rollouts of this session with capture on and not one model call."""
    replaced_captures: int = 0
    """Rollouts under whose ids something was captured before, and not by a run that this one
    overwrites; it was cleared."""
    on_change: Callable[[], None] | None = None

    @property
    def ended(self) -> int:
        """Return how many rollouts of this session have ended."""
        return self.finished + self.failed.total()

    @property
    def mean_reward(self) -> float | None:
        """Return the mean over all finished rollouts of the run; None before the first."""
        finished = self.done_before + self.finished
        return (self.reward_before + self.reward_total) / finished if finished else None

    def rate(self, elapsed_s: float) -> float | None:
        """Return rollouts ended a second; None while nothing has ended."""
        return self.ended / elapsed_s if self.ended and elapsed_s > 0 else None

    def eta_s(self, elapsed_s: float) -> float | None:
        """Return the seconds that the rest will take at the rate so far; None when unknown."""
        rate = self.rate(elapsed_s)
        left = self.total - self.done_before - self.ended
        return None if rate is None else max(0, left) / rate
