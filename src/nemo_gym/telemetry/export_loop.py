"""A thread of its own that exports at an interval, on request, and once more at the end.

It never holds up anybody: `flush` and `stop` wait a bounded time, a target that cannot be reached
is named in one warning, and the thread is a daemon, so it never keeps the process alive. Nothing
that one export raises ends it: the next one comes at its time, and so does the last.
"""

import logging
import threading
from collections.abc import Callable
from time import monotonic

from nemo_gym.telemetry.instruments import swallowing

__all__ = ["ExportLoop"]

_logger = logging.getLogger(__name__)


_STUCK_S = 1.0
_AFTER_ABORT_S = 0.4
_SILENT = "it does not answer"


class ExportLoop:
    """Calls `export` (True: delivered) every `interval_s`, from one thread.

    `abort` ends an export that hangs, `reason` says why the last one failed, `warned` gets the line
    of the one warning, on a thread of its own choosing.
    """

    def __init__(
        self,
        target: str,
        interval_s: float,
        export: Callable[[], bool],
        *,
        abort: Callable[[], None] = lambda: None,
        reason: Callable[[], str] = lambda: "",
        warned: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._target = target
        self._interval_s = min(interval_s, threading.TIMEOUT_MAX)  # a wait cannot be longer
        self._export = export
        self._abort = abort
        self._reason = reason
        self._told = warned
        self._changed = threading.Condition()
        self._asked = self._answered = 0
        self._stopping = False
        self._failing = self._warned = False
        self._began: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"export {target}", daemon=True)
        self._thread.start()

    @property
    def failing(self) -> bool:
        """Whether the last export was not delivered, or the present one hangs."""
        began = self._began
        return self._failing or (began is not None and monotonic() - began > _STUCK_S)

    def nudge(self) -> None:
        """Export soon, without waiting for it."""
        with self._changed:
            self._asked += 1
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Export now; return whether that ended in time. A failing target is not waited for."""
        if self.failing:
            return False
        with self._changed:
            self._asked += 1
            wanted = self._asked
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._answered >= wanted, timeout_s)

    def stop(self, budget_s: float) -> None:
        """Export once more and end, within `budget_s`; what hangs is cut off."""
        deadline = monotonic() + budget_s
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(budget_s * (0.1 if self.failing else 0.55))
        if self._thread.is_alive():
            # Beside, since some exporters wait in their shutdown for the export that hangs.
            threading.Thread(target=self._abort, daemon=True).start()
            self._thread.join(min(_AFTER_ABORT_S, max(0.0, deadline - monotonic())))
        else:
            self._abort()
        if self._thread.is_alive():
            self._warn(_SILENT)

    def _run(self) -> None:
        while not self._wait():
            self._once()
        self._once()

    def _wait(self) -> bool:
        """Sleep until the interval is over or an export is asked for; return whether to stop."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopping or self._asked > self._answered, self._interval_s
            )
            return self._stopping

    def _once(self) -> None:
        with self._changed:
            asked = self._asked
        self._began = monotonic()
        delivered = self._is_delivered()
        self._began = None
        self._failing = not delivered
        swallowing(self._note, delivered)
        with self._changed:
            self._answered = asked
            self._changed.notify_all()

    def _is_delivered(self) -> bool:
        try:
            return self._export()
        except BaseException:  # telemetry never stops a server, and an exit is not this thread's
            _logger.debug("the export to %s failed", self._target, exc_info=True)
            return False

    def _note(self, delivered: bool) -> None:
        if not delivered:
            self._warn(self._reason() or (_SILENT if self._stopping else ""))
        elif self._warned:
            _logger.info("telemetry reaches %s again", self._target)
            self._warned = False

    def _warn(self, reason: str) -> None:
        if self._warned:
            return
        self._warned = True
        why = f" ({reason})" if reason else ""
        line = f"telemetry does not reach {self._target}{why}"
        _logger.warning("%s; it goes on trying and says so only this once", line)
        self._told(line)
