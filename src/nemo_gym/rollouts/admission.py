"""How many rollouts run at once: a number in, an async context manager out."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from nemo_gym.telemetry.observer import MeteredAdmission, driver_metrics

__all__ = ["Admission", "admission_for"]

Admission: TypeAlias = AbstractAsyncContextManager[Any]
"""`async with` it around one rollout; it lets a bounded number in."""


def admission_for(concurrency: int) -> Admission:
    """Return a limit on rollouts under way, metered where telemetry is on."""
    semaphore = asyncio.Semaphore(concurrency)
    metrics = driver_metrics()
    return semaphore if metrics is None else MeteredAdmission(semaphore, metrics)
