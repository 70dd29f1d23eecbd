"""What this process exports: one value set by whoever starts the exporters, read by the observer.

Nothing of OpenTelemetry is imported here. None while nothing exports; dropped in a forked child.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.telemetry.live import live_counts
from nemo_gym.telemetry.machine import busy_s
from nemo_gym.telemetry.recorded import Recorded

__all__ = ["Exporting", "exporting", "set_exporting"]


@dataclass(frozen=True, slots=True)
class Exporting:
    """Metrics leave this process, and how."""

    meter: Any
    """The OpenTelemetry meter that instruments are created on."""
    sample_interval_s: float
    """How often each observed event loop is sampled, in seconds."""
    count_tasks: bool
    """Whether a sample also walks every task of its loop."""
    flush: Callable[[], None]
    """Hand what is recorded to the exporters now. Bounded in time; never raises."""
    recorded: Recorded = field(default_factory=Recorded)
    """Plain numbers of everything beyond the observer's own instruments."""
    machine_busy_s: float | None = field(default_factory=busy_s)
    """`machine.busy_s` when this began."""
    keep: Callable[[], None] = lambda: None
    """Take every reading now, to be sent later. Waits for no collector."""


_EXPORTING: Exporting | None = None


def exporting() -> Exporting | None:
    """Return what this process exports, None while it exports nothing."""
    return _EXPORTING


def set_exporting(value: Exporting | None) -> None:
    """Say that metrics now leave this process, or (None) that they no longer do."""
    global _EXPORTING  # noqa: PLW0603 - one value a process, read on the hot path as a plain global
    recorded, live = None if value is None else value.recorded, live_counts()
    live.ended_calls.tell(None if recorded is None else recorded.count_calls)
    live.connections.tell(None if recorded is None else recorded.count_waits)
    _EXPORTING = value


os.register_at_fork(after_in_child=lambda: set_exporting(None))
