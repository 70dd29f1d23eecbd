"""When a loop is sampled: an instant in each interval, drawn anew each time. Pure.

A load that repeats would meet equal steps at the same point of its beat, again and again, or always
just after it: sleeping an interval after each late wake-up marches in step with any load of that
period. Any fixed sequence has such a period. With one random instant in every interval each moment
is as likely to be met as any other, so what samples say of a loop is right on average whatever
holds it. Few samples are nearly right, too: eight in a row are at all parts of their intervals, in
a random order, so a load of that very period is met at all parts of its beat.
"""

from collections.abc import Callable, Iterator
from itertools import count

from nemo_gym.telemetry.machine import CoreWaits

__all__ = ["instants", "wait_s"]

_PARTS = 8
_LONG = 4
"""A wait for a core is taken to be so many times as long as the others at most."""


def instants(began: float, interval: float, draw: Callable[[], float]) -> Iterator[float]:
    """Yield an instant of each interval after `began`; `draw` returns 0 to 1.

    They are there whether or not somebody was awake: one that was slept through is late, not lost.
    """
    for first in count(0, _PARTS):
        for number, part in enumerate(sorted(range(_PARTS), key=lambda _: draw()), first):
            yield began + (number + (part + draw()) / _PARTS) * interval


def wait_s(before: CoreWaits | None, after: CoreWaits | None) -> float:
    """Return how much of a late wake-up may have been a wait for a core: one of those in between.

    Not all of them: those of other work in between held nobody up any more.
    """
    if before is None or after is None:
        return 0.0
    waited_s, turns = after.waited_s - before.waited_s, after.turns - before.turns
    return min(waited_s, _LONG * waited_s / turns) if turns > 0 else waited_s
