"""What capture hands to a store: a call that ended, its line, and the promise of one to come."""

import asyncio
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from nemo_gym.ids import RolloutId

__all__ = ["Claim", "EndedCall", "Row", "RowStore", "row_of"]


class Row(NamedTuple):
    """One model call, encoded; its line goes to the file as it is."""

    rollout_id: RolloutId
    model_call_id: str
    """Unique for ever: replay and clearing know a row by it."""
    line: bytes
    """A JSON object on one line, without the line end."""


class EndedCall(Protocol):
    """A model call whose row is still to be made."""

    @property
    def rollout_id(self) -> RolloutId:
        """The rollout it belongs to."""
        ...

    def row(self) -> Row:
        """Make its row: called once, on whatever thread suits the store. May raise anything."""
        ...


class Claim(Protocol):
    """A call under way: until it is released, readers know that a row of the rollout may come."""

    def release(self) -> None:
        """Say that nothing more comes of this call; releasing twice is no error."""
        ...


def row_of(call: EndedCall) -> Row | Exception:
    """Return the row of a call, or what went wrong making it: that loses one call, not a batch."""
    try:
        return call.row()
    except Exception as error:  # noqa: BLE001 - the wall between capture and calls
        return error


class RowStore(Protocol):
    """Keeps rows: `CaptureStore` on disk, `MemoryStore` in tests."""

    def claim(self, rollout_id: RolloutId) -> Claim:
        """Say that a call of the rollout is under way. Never raises: a failure is logged."""
        ...

    def submit(self, row: Row, claim: Claim | None = None) -> Future[None]:
        """Hand over a row; the future ends when the row is durable, or with what went wrong.

        Does not wait. `claim` is released when the future ends, whoever is there to see it.
        """
        ...

    def keep(
        self, call: EndedCall, claim: Claim | None = None
    ) -> "asyncio.Future[Exception | None]":
        """Store the row of a call, with a future of the running loop; a batch wakes it once.

        Its result is what went wrong, None when the row is durable; a row that cannot be made is
        a lost one. The call is in safe hands: cancelling whoever awaits takes nothing back.
        """
        ...

    def mark_incomplete(
        self, rollout_id: RolloutId, reason: str, claim: Claim | None = None
    ) -> None:
        """Record that the rollout lacks a row. Never raises, does not wait.

        `claim` is released once it is recorded.
        """
        ...
