"""Readings on their way to a collector: taken when they are sent, or kept from an earlier moment.

What an observer reads ends with the observer, which may be before a collector that hangs, or a
thread that got no core in time, has taken it. No clock, no thread, no OpenTelemetry.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Outgoing"]

T = TypeVar("T")


class Outgoing(Generic[T]):
    """Takes all readings by `take`, and hands them to `send` (True: delivered) in that order."""

    def __init__(self, take: Callable[[], T], send: Callable[[T], bool]) -> None:
        self._take = take
        self._send = send
        self._kept: T | None = None
        self._taking = threading.Lock()

    def keep(self) -> None:
        """Take all readings now; they are sent before any that are taken later.

        Only the latest are kept. Nobody is waited for, but whoever takes readings just now.
        """
        with self._taking:
            self._kept = self._take()

    def export(self) -> bool:
        """Send what was kept, until it is delivered, and what is read now."""
        with self._taking:
            kept, latest = self._kept, self._take()
        if kept is not None:
            if not self._send(kept):
                return False
            self._forget(kept)
        return self._send(latest)

    def _forget(self, sent: T) -> None:
        with self._taking:
            if self._kept is sent:
                self._kept = None
