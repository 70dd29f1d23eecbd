"""How many rollouts run at once: a number in, an async context manager out."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

__all__ = ["Admission", "admission_for"]

Admission: TypeAlias = AbstractAsyncContextManager[Any]
"""`async with` it around one rollout; it lets a bounded number in."""


def admission_for(concurrency: int) -> Admission:
    """Return a limit on rollouts under way."""
    return asyncio.Semaphore(concurrency)
