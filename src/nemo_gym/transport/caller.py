"""Who waits for an answer: its connection tells when they went away, without being asked.

Each server of ours, on a socket or in-process, puts a `Caller` in the scope of a request. Without
one a disconnect is known only to whoever awaits `receive`, which takes a task of its own.
"""

from collections.abc import Callable

__all__ = ["CALLER", "Caller"]

CALLER = "nemo_gym.caller"
"""Where a request's scope has it, among the `extensions`."""


class Caller:
    """The other side of a connection, for the one request that it serves at a time."""

    __slots__ = ("is_gone", "is_unheard", "when_gone", "when_unheard")

    def __init__(self) -> None:
        self.is_gone = False
        self.is_unheard = False
        """Whether so much of the body is unread that nothing is heard of them any more."""
        self.when_gone: Callable[[], None] | None = None
        """Called once, when they have gone; whoever sets it takes it back."""
        self.when_unheard: Callable[[], None] | None = None
        """Called once, when nothing is heard of them any more."""

    def leaves(self) -> None:
        """Say that they have gone."""
        self.is_gone = True
        told, self.when_gone, self.when_unheard = self.when_gone, None, None
        if told is not None:
            told()

    def falls_silent(self) -> None:
        """Say that nothing is heard of them until the body is read."""
        self.is_unheard = True
        told, self.when_unheard = self.when_unheard, None
        if told is not None:
            told()
