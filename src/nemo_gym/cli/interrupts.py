"""Signals that end a command, also while a component of the user holds the event loop.

The loop answers a signal as soon as it gets to it. Where code that never returns keeps it from
that, a thread of its own ends the process, at the second Ctrl-C or at the first signal that leaves
nothing to finish.
"""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from types import FrameType, TracebackType
from typing import Any

__all__ = ["INTERRUPTED", "Interrupts", "signals_that_end"]

INTERRUPTED = 130
"""Exit code of a command that a signal ended."""
_PATIENCE_S = 1.5
"""How long the event loop has for its answer to a signal, and the process for its end after."""


def signals_that_end() -> list[signal.Signals]:
    """Return what ends a command: Ctrl-C, SIGTERM, and a terminal that is closed.

    Under `nohup` the last is ignored, and stays so.
    """
    found = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        found.append(signal.SIGHUP)
    return found


class Interrupts(AbstractContextManager["Interrupts"]):
    """Inside, `answer` is called on the running loop for each signal.

    `is_last` says, at any moment, whether the command should be over soon after a signal of that
    number; `leave` ends the process, by default at once and with the code of an interruption,
    where the loop gives no answer within `patience_s`, or the process does not end after.
    """

    def __init__(
        self,
        answer: Callable[[int], None],
        is_last: Callable[[int], bool],
        leave: Callable[[], None] | None = None,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._answer = answer
        self._is_last = is_last
        self._leave = leave or _leave
        self._patience_s = patience_s
        self._unanswered = 0
        self._told = False
        self._loop = asyncio.get_running_loop()
        self._before: dict[int, Any] = {}
        # A lock and nothing more: what a signal handler takes in the main thread may be held there.
        self._alarm = threading.Lock()
        self._alarm.acquire()
        self._watching = True

    def __enter__(self) -> "Interrupts":
        threading.Thread(target=self._watch, name="interrupts", daemon=True).start()
        for number in signals_that_end():
            self._before[number] = signal.signal(number, self._signalled)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._told:
            # Threads of components may go on for ever, and the interpreter would wait for them.
            self._unanswered = 1
        else:
            self._watching = False
        self._ring()

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        """Run between two bytecodes of the main thread, whatever it is doing."""
        self._told = True
        self._unanswered += 1
        with suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._answered, number)
        if self._unanswered > 1 or self._is_last(number):
            self._ring()

    def _answered(self, number: int) -> None:
        self._unanswered = 0
        self._answer(number)

    def _ring(self) -> None:
        with suppress(RuntimeError):  # it rings already
            self._alarm.release()

    def _watch(self) -> None:
        while True:
            self._alarm.acquire()
            if not self._watching:
                return
            time.sleep(self._patience_s)
            if self._unanswered:
                self._leave()


def _leave() -> None:
    # Nothing is flushed: the main thread may hold the lock of the stream.
    with suppress(OSError):
        os.write(2, b"interrupted; what held the process up was left behind\n")
    os._exit(INTERRUPTED)
