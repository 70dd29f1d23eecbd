"""What a writer is asked to do, and how whoever asked is told that it is done."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias

from nemo_gym.capture.row import Claim, EndedCall, Row
from nemo_gym.ids import RolloutId

__all__ = ["Ended", "Job", "end_jobs", "release"]


@dataclass(slots=True)
class Job:
    """A row to store, a call to make one of, a rollout to mark, or none of these: a flush."""

    future: "Future[None] | asyncio.Future[Exception | None]"
    """Ends when the job has: one of a loop, by way of that loop, with what went wrong as its
    result, since nobody may be left to ask for an exception."""
    row: Row | None = None
    """Set by the writer where a call is given."""
    call: EndedCall | None = None
    claim: Claim | None = None
    """Released when the job has ended, before the future."""
    rollout_id: RolloutId | None = None
    """The rollout to mark."""
    reason: str = ""
    """What the mark says."""

    def lost(self) -> RolloutId | None:
        """Return the rollout that lacks a row when this cannot be done."""
        if self.row is not None:
            return self.row.rollout_id
        return self.rollout_id if self.call is None else self.call.rollout_id


Ended: TypeAlias = tuple[Job, Exception | None]
"""A job and what went wrong with it."""

_OfLoop: TypeAlias = "tuple[asyncio.Future[Exception | None], Exception | None]"


def release(job: Job) -> None:
    """Let go of the claim that came with a job."""
    if job.claim is not None:
        job.claim.release()


def end_jobs(ended: Iterable[Ended]) -> None:
    """End the futures of these jobs; every loop among them is woken once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_OfLoop]] = {}
    for job, error in ended:
        future = job.future
        if not isinstance(future, Future):
            by_loop.setdefault(future.get_loop(), []).append((future, error))
        elif error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
    for loop, futures in by_loop.items():
        try:
            loop.call_soon_threadsafe(_end_all, futures)
        except RuntimeError:
            # The loop is closed: nobody waits any more, and the rows are safe.
            continue


def _end_all(futures: "list[_OfLoop]") -> None:
    for future, error in futures:
        if not future.done():
            future.set_result(error)
