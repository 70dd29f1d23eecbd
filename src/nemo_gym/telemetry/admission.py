"""What a driver lets in, counted: waits and rollouts inside it, in plain integers.

In come the driver's own limit and rollouts, with whatever is observed; they go on as they would
without. A failure of what observes is logged, never keeps a place taken, and is balanced at the
end: who was not counted in is not counted out. No OpenTelemetry, no clock but for the wait.
"""

import logging
from collections.abc import Awaitable
from time import perf_counter
from typing import Any, Protocol

from nemo_gym.telemetry.counts import DriverCounts
from nemo_gym.telemetry.instruments import swallowing

__all__ = ["MeteredAdmission", "Observed", "count_resident"]

_logger = logging.getLogger(__name__)


class Observed(Protocol):
    """What is used of the process's observer."""

    driver: DriverCounts
    admission: Any
    """Histogram of waits in ms: whatever has `record(number)`."""


class MeteredAdmission:
    """The driver's concurrency limit, with each rollout's wait recorded and those inside counted.

    `semaphore` is any async context manager; `async with` this one in its place.
    """

    def __init__(self, semaphore: Any, observer: Observed) -> None:
        self._semaphore = semaphore
        self._observer = observer
        self._uncounted = 0  # those inside that could not be counted

    async def __aenter__(self) -> None:
        started = perf_counter()
        await self._semaphore.__aenter__()
        try:
            waited_ms = (perf_counter() - started) * 1000
            self._count_in()
            swallowing(self._record, waited_ms)
        except BaseException as error:
            # What is no mere failure goes on, and who never came in will never leave.
            await self.__aexit__(type(error), error, error.__traceback__)
            raise

    async def __aexit__(self, *exc_info: Any) -> Any:
        try:
            swallowing(self._count_out)
        finally:
            left = await self._semaphore.__aexit__(*exc_info)
        return left

    def _count_in(self) -> None:
        counted = False
        try:
            self._observer.driver.active += 1
            counted = True
        except Exception:  # telemetry never stops a rollout
            _logger.warning("a rollout could not be counted", exc_info=True)
        finally:
            if not counted:
                self._uncounted += 1

    def _record(self, waited_ms: float) -> None:
        self._observer.admission.record(waited_ms)

    def _count_out(self) -> None:
        if self._uncounted:
            self._uncounted -= 1
        else:
            self._observer.driver.active -= 1


async def count_resident(awaitable: Awaitable[Any], observer: Observed) -> Any:
    """Await one rollout, counting it as resident until it finishes."""
    counted = swallowing(_add_resident, observer, 1)
    try:
        return await awaitable
    finally:
        if counted:
            swallowing(_add_resident, observer, -1)


def _add_resident(observer: Observed, number: int) -> None:
    observer.driver.resident += number
