"""The capture stores of a process: one per directory, shared by the model servers that write."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from nemo_gym.capture.store import CaptureStore
from nemo_gym.config.schema import root_settings
from nemo_gym.observability.model_calls import model_call_capture_dirs_from_config

__all__ = ["body_limit_of", "close_with", "open_capture_store"]

_STORES: dict[Path, CaptureStore] = {}


def open_capture_store(settings: object) -> CaptureStore | None:
    """Return the store that the settings of a run ask for, ready to write; None: capture is off.

    Raises `ConfigMistake` when capture is on without an absolute directory that can be written.
    """
    for directory in model_call_capture_dirs_from_config(settings):
        store = _STORES.setdefault(directory, CaptureStore(directory))
        store.open_for_writing()
        return store
    return None


def body_limit_of(settings: Mapping[str, object]) -> int:
    """Return the most bytes that are kept of one body, after decompression."""
    return root_settings(settings).model_call_capture_max_body_bytes


def close_with(app: FastAPI, store: CaptureStore) -> None:
    """Finish what `store` was given when the lifespan of `app` ends.

    A store that another server of the process still writes to opens itself again.
    """
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(running: Any) -> AsyncIterator[Any]:
        async with inner(running) as state:
            try:
                yield state
            finally:
                await asyncio.to_thread(store.close)

    app.router.lifespan_context = lifespan
