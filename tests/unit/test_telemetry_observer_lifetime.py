"""The observer and what it lives in: an app's lifespan, a forked child."""

import asyncio
import gc
import os
import threading
import warnings
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from fastapi import FastAPI

from nemo_gym.telemetry import observer
from nemo_gym.telemetry.exporting import Exporting, set_exporting
from nemo_gym.telemetry.observer import (
    driver_metrics,
    observe_app_event_loop,
    observe_event_loop,
    observer_settings,
    request_counts,
)
from support.meters import metering


async def test_an_app_keeps_the_lifespan_it_has() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> Any:
        seen.append(f"in:{request_counts() is not None}:{app.title}")
        yield {"model": "loaded"}
        seen.append(f"out:{request_counts() is not None}")

    app = FastAPI(title="mcqa", lifespan=lifespan)
    observe_app_event_loop(app, "server")
    with metering():
        async with app.router.lifespan_context(app) as state:
            seen.append(str(state))

    assert seen == ["in:True:mcqa", "{'model': 'loaded'}", "out:True"]
    assert request_counts() is None


async def test_a_lifespan_that_fails_still_ends_the_observation() -> None:
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> Any:
        raise RuntimeError("no database")
        yield

    app = FastAPI(lifespan=lifespan)
    observe_app_event_loop(app, "server")
    with metering(), pytest.raises(RuntimeError, match="no database"):
        async with app.router.lifespan_context(app):
            pass

    assert (request_counts(), observer._ACTIVE_LOOPS) == (None, 0)


async def test_only_the_last_loop_has_the_readings_kept_and_while_there_are_some() -> None:
    kept: list[object] = []
    with metering() as metered:
        set_exporting(replace(metered.exporting, keep=lambda: kept.append(driver_metrics())))
        async with observe_event_loop("first"):
            async with observe_event_loop("second"):
                state = driver_metrics()
            before = list(kept)

    assert state is not None
    assert (before, kept) == ([], [state])


async def test_readings_are_kept_though_the_end_of_a_loop_is_cancelled() -> None:
    kept: list[bool] = []
    with metering() as metered:
        flushing, goes_on = threading.Event(), threading.Event()

        def flush() -> None:
            flushing.set()
            goes_on.wait(10)

        keep = partial(kept.append, True)
        set_exporting(replace(metered.exporting, flush=flush, keep=keep))

        async def serve() -> None:
            async with observe_event_loop("server"):
                pass

        serving = asyncio.create_task(serve())
        await asyncio.to_thread(flushing.wait, 10)
        serving.cancel()
        [ended] = await asyncio.gather(serving, return_exceptions=True)
        goes_on.set()

    assert isinstance(ended, asyncio.CancelledError)
    assert kept == [True]
    assert (request_counts(), observer._ACTIVE_LOOPS) == (None, 0)


async def test_a_loop_without_threads_left_ends_all_the_same() -> None:
    with metering():
        async with observe_event_loop("server"):
            await asyncio.get_running_loop().shutdown_default_executor()

    assert (request_counts(), observer._ACTIVE_LOOPS) == (None, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_a_forked_child_observes_nothing_and_may_begin_anew() -> None:
    callbacks = len(gc.callbacks)
    with metering() as metered:
        async with observe_event_loop("server"):
            with warnings.catch_warnings():
                # Newer Pythons warn that other threads are there; nothing here waits for them.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if pid == 0:
                child = request_counts(), observer_settings(), observer._ACTIVE_LOOPS
                clean = child == (None, None, 0) and len(gc.callbacks) == callbacks
                again = observer._acquire_process_observer(metered.meter)
                began = request_counts() is again.requests
                os._exit(0 if clean and began else 1)
            _, status = await asyncio.to_thread(os.waitpid, pid, 0)
            parent = request_counts()

    assert os.waitstatus_to_exitcode(status) == 0
    assert parent is not None


async def test_an_observer_that_cannot_be_set_up_stops_no_app(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class NoMeter:
        __slots__ = ()  # cannot be referred to weakly, so nothing can be kept for it

    set_exporting(Exporting(NoMeter(), 1.0, count_tasks=False, flush=lambda: None))
    try:
        async with observe_event_loop("server"):
            inside = request_counts()
    finally:
        set_exporting(None)

    assert inside is None
    assert "the event loop server is not observed" in caplog.text
    assert observer._ACTIVE_LOOPS == 0
