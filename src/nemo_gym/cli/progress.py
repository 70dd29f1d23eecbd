"""A run's progress on stderr: one live line on a terminal, a plain line now and then elsewhere.

A run shows nothing in its first two seconds: a short one needs no progress. Lines that others print
meanwhile go above the live one.
"""

import asyncio
import contextlib
import shutil
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TextIO

from nemo_gym.rollouts.progress import Progress

__all__ = ["ProgressDisplay", "progress_text", "shown_duration", "shown_wall_time"]

_QUIET_S = 2.0
_LIVE_INTERVAL_S = 0.25
_PLAIN_INTERVAL_S = 5.0
_BAR_CELLS = 10
_CLEAR = "\r\x1b[K"


def shown_duration(seconds: float) -> str:
    """Return seconds as a person reads them: `7 s`, `2 m 05 s`, `3 h 20 m`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} m {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} m"


def shown_wall_time(seconds: float) -> str:
    """Return how long something took: `640 ms`, `4.2 s`, then as `shown_duration`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 9.95 else shown_duration(seconds)


def progress_text(progress: Progress, elapsed_s: float) -> str:
    """Return where a run stands, in one line that fits 80 columns."""
    done = progress.done_before + progress.ended
    parts = [f"{done}/{progress.total}"]
    if progress.failed:
        parts.append(f"{progress.failed.total()} failed")
    parts.append(f"{progress.running} running")
    rate, eta = progress.rate(elapsed_s), progress.eta_s(elapsed_s)
    if rate is not None:
        parts.append(f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min")
    if progress.mean_reward is not None:
        parts.append(f"reward {progress.mean_reward:.3f}")
    if eta is not None:
        parts.append(f"{shown_duration(eta)} left")
    return " · ".join(parts)


def _bar(progress: Progress) -> str:
    done = progress.done_before + progress.ended
    full = int(_BAR_CELLS * min(1.0, done / progress.total)) if progress.total else 0
    return f"{'█' * full}{'░' * (_BAR_CELLS - full)}"


class ProgressDisplay:
    """Shows one run's progress while its context is open."""

    def __init__(self, *, quiet: bool = False, out: TextIO | None = None) -> None:
        self._out = sys.stderr if out is None else out
        self._quiet = quiet
        self._live = not quiet and self._out.isatty()
        self._drawn = False

    def say(self, line: str) -> None:
        """Print one line above the live one."""
        self._write(f"{_CLEAR if self._drawn else ''}{line}\n")
        self._drawn = False

    @asynccontextmanager
    async def waiting(self, text: str) -> AsyncGenerator[None]:
        """Show what is waited for until the context ends."""
        if self._live:
            self._draw(text)
        task = None if self._quiet else asyncio.create_task(self._wait(text, time.monotonic()))
        try:
            yield
        finally:
            await self._end(task)

    @asynccontextmanager
    async def showing(
        self, progress: Progress, clock: Callable[[], float] = time.monotonic
    ) -> AsyncGenerator[None]:
        """Show `progress` until the context ends."""
        task = None if self._quiet else asyncio.create_task(self._show(progress, clock))
        try:
            yield
        finally:
            await self._end(task)

    async def _end(self, task: "asyncio.Task[None] | None") -> None:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._drawn:
            self._write(_CLEAR)
            self._drawn = False

    async def _wait(self, text: str, began: float) -> None:
        await asyncio.sleep(_QUIET_S if self._live else _PLAIN_INTERVAL_S)
        if not self._live:
            self.say(text)
            return
        while True:
            self._draw(f"{text} · {shown_duration(time.monotonic() - began)}")
            await asyncio.sleep(_LIVE_INTERVAL_S)

    async def _show(self, progress: Progress, clock: Callable[[], float]) -> None:
        began = clock()
        await asyncio.sleep(_QUIET_S)
        while True:
            text = progress_text(progress, clock() - began)
            if self._live:
                self._draw(f"{_bar(progress)} {text}")
            else:
                self.say(text)
            await asyncio.sleep(_LIVE_INTERVAL_S if self._live else _PLAIN_INTERVAL_S)

    def _draw(self, line: str) -> None:
        self._write(_CLEAR + line[: shutil.get_terminal_size().columns - 1])
        self._drawn = True

    def _write(self, text: str) -> None:
        # Whoever read stderr may be gone; the run goes on.
        with contextlib.suppress(OSError, ValueError):
            self._out.write(text)
            self._out.flush()
