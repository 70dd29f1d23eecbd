"""Calls to a provider, told once each at their end: readings in, many at a time out to who counts.

What counts them is handed in, so that a call under way costs the same whether metrics are exported
or not. No clock, no OpenTelemetry.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from nemo_gym.telemetry.series import Gathering

__all__ = ["EndedCall", "EndedCalls", "Tokens", "known"]

N = TypeVar("N", int, float)

Tokens = tuple[int | None, int | None, int | None, int | None, int | None]
"""Of input, output, and their parts: cache read, cache creation, reasoning; None: not known."""

EndedCall = tuple[tuple[str, str], float | None, float | None, str | None, "Tokens | None", int]
"""What a call leaves at its end. In order:

provider and model; seconds, None where only tokens are told; seconds until the first data of a
stream; category of its error; tokens; and how many calls were under way when it began, itself among
them, 0 where it had to be tried again. None: not known, or none.
"""
Counting = Callable[[Sequence[EndedCall]], None]


class EndedCalls(Gathering[EndedCall]):
    """Gathers calls for `count`, which always counts them, and for `also` while that is there."""

    __slots__ = ("_also", "_always")

    def __init__(self, count: Counting) -> None:
        super().__init__()
        self._always = count
        self._also: Counting | None = None

    def tell(self, also: Counting | None) -> None:
        """Let `also` count the calls that end from now on, in place of who did beside."""
        with self._counting:
            self._count_fresh()
            self._also = also

    def _count(self, readings: list[EndedCall]) -> None:
        self._always(readings)
        if self._also is not None:
            self._also(readings)


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
