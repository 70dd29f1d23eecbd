"""What is known of a directory's rollouts besides their rows: calls under way, rows missing.

One look for however many rollouts. What cannot be looked at is not known, which is neither yes nor
no, and `problem` says why.
"""

from dataclasses import dataclass

from nemo_gym.capture.claims import ClaimsSeen, look_at_claims
from nemo_gym.capture.layout import Layout
from nemo_gym.capture.marks import marked_rollouts
from nemo_gym.files.disk import Disk
from nemo_gym.files.locks import says_no_locks
from nemo_gym.ids import RolloutId

__all__ = ["Standing", "look_at"]


@dataclass(frozen=True, slots=True)
class Standing:
    """The claims and marks of a directory at one moment."""

    claims: ClaimsSeen | None
    """None: they cannot be read."""
    marked: frozenset[RolloutId] | None
    """Rollouts that are marked as lacking a row. None: the marks cannot be read."""
    problem: str | None
    """Why something cannot be read; None: all of it was."""

    def is_pending(self, rollout_id: RolloutId) -> bool | None:
        """Say whether a call of the rollout was under way; None: that cannot be told."""
        return None if self.claims is None else self.claims.is_claimed(rollout_id)

    def is_incomplete(self, rollout_id: RolloutId) -> bool | None:
        """Say whether the rollout is known to lack a row; None: that cannot be told."""
        lost = None if self.claims is None else self.claims.is_lost(rollout_id)
        if lost or (self.marked is not None and rollout_id in self.marked):
            return True
        return None if self.marked is None else lost


def look_at(layout: Layout, disk: Disk) -> Standing:
    """Return how the rollouts of a directory stand. Never raises `OSError`."""
    claims: ClaimsSeen | None = None
    marked: frozenset[RolloutId] | None = None
    problem: str | None = None
    try:
        claims = look_at_claims(layout, disk)
    except OSError as error:
        # Where there are no locks there are no claims.
        if says_no_locks(error):
            claims = ClaimsSeen()
        else:
            problem = f"{layout.claims}: {error.strerror or error}"
    # In this order: a claim that says a row was lost is let go only once the mark is there.
    try:
        marked = frozenset(marked_rollouts(layout))
    except OSError as error:
        problem = f"{layout.marks}: {error.strerror or error}"
    return Standing(claims, marked, problem)
