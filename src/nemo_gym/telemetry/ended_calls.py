"""Calls to a provider, told once each at their end: what such a reading holds. No clock.

It is the same whether metrics are exported or not, so that a call under way costs the same.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, cast

from nemo_gym.telemetry.series import Gathered, Gathering

__all__ = ["EndedCall", "EndedCalls", "Names", "Readable", "Tokens", "known"]

N = TypeVar("N", int, float)

Tokens = tuple[int | None, int | None, int | None, int | None, int | None]
"""Of input, output, and their parts: cache read, cache creation, reasoning; None: not known."""

Names = tuple[str, str]
"""Of provider and model."""

EndedCall = tuple[Names, float | None, float | None, str | None, "Tokens | None", int]
"""What a call leaves at its end. In order:

provider and model; seconds, None where only tokens are told; seconds until the first data of a
stream; category of its error; tokens; and how many calls were under way when it began, itself among
them, 0 where it had to be tried again. None: not known, or none.
"""


def known(column: Sequence[N | None]) -> tuple[Sequence[N], N]:
    """Return what is not None, in order, and its sum; mostly that is all or nothing."""
    whole = cast("Sequence[N]", column)
    try:
        # It stumbles over a None, at a fifth of the cost of looking for one.
        return whole, sum(whole)
    except TypeError:
        some = column.count(None) < len(column)  # quick: a None is found by identity
        found = [value for value in column if value is not None] if some else []
        return found, sum(found)


class Readable(Protocol):
    """A call that has ended, and says what it leaves when it is asked."""

    def reading(self) -> EndedCall:
        """Return what the call leaves."""
        ...


class EndedCalls(Gathering["EndedCall | Readable"]):
    """Takes each call at its end; what they leave is asked of many at a time, and counted."""

    __slots__ = ("_read",)

    def __init__(self, count: Callable[[Sequence[EndedCall]], None]) -> None:
        super().__init__()
        self._read = Gathered(count)

    def tell(self, also: Callable[[Sequence[EndedCall]], None] | None) -> None:
        """Let `also` count what comes from now on, in place of who did beside."""
        # All under one lock: a call that a finalizer ends meanwhile waits to be counted, not to be
        # let in.
        with self._counting:
            self._count_fresh()
            self._read.tell(also)

    def _count(self, readings: "list[EndedCall | Readable]") -> None:
        self._read.record_all(
            [one if isinstance(one, tuple) else one.reading() for one in readings]
        )
        self._read.gather()
