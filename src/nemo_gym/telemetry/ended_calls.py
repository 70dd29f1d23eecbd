"""Calls to a provider, told once each at their end: what such a reading holds. No clock.

It is the same whether metrics are exported or not, so that a call under way costs the same.
"""

from collections.abc import Sequence
from typing import TypeVar, cast

__all__ = ["EndedCall", "Tokens", "known"]

N = TypeVar("N", int, float)

Tokens = tuple[int | None, int | None, int | None, int | None, int | None]
"""Of input, output, and their parts: cache read, cache creation, reasoning; None: not known."""

EndedCall = tuple[tuple[str, str], float | None, float | None, str | None, "Tokens | None", int]
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
