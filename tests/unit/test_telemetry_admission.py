"""Admission and residence as they are documented: any observer, and no failure keeps a place."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from nemo_gym.rollouts.sizes import record_sizes
from nemo_gym.telemetry.observer import (
    DriverCounts,
    MeteredAdmission,
    count_resident,
    driver_metrics,
    observe_event_loop,
)
from support.meters import metering


class Kept:
    """A histogram of a user's own."""

    def __init__(self) -> None:
        self.readings: list[float] = []

    def record(self, reading: float) -> None:
        self.readings.append(reading)


class Raising:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def record(self, _reading: float) -> None:
        raise self.error


class Unwilling:
    """Counts that refuse to be changed while `refuses`."""

    refuses: bool
    error: BaseException
    active: int

    def __init__(self, error: BaseException) -> None:
        self.__dict__.update(active=0, resident=0, error=error, refuses=True)

    def __setattr__(self, name: str, value: object) -> None:
        if self.refuses:
            raise self.error
        self.__dict__[name] = value


def observed(**given: Any) -> Any:
    return SimpleNamespace(**{"driver": DriverCounts(), "admission": Kept(), **given})


async def test_an_observer_needs_no_more_than_the_documented_attributes() -> None:
    state, limit = observed(), asyncio.Semaphore(1)

    async with MeteredAdmission(limit, state):
        inside = (state.driver.active, limit.locked())

    assert inside == (1, True)
    assert (state.driver.active, limit.locked()) == (0, False)
    assert len(state.admission.readings) == 1


async def test_waits_are_recorded_in_milliseconds() -> None:
    state = observed()
    admission = MeteredAdmission(asyncio.Semaphore(1), state)

    async def rollout() -> None:
        async with admission:
            await asyncio.sleep(0.05)

    await asyncio.gather(rollout(), rollout())

    first, second = state.admission.readings
    assert first < 40 < second


async def test_histograms_that_are_replaced_are_recorded_on_from_then_on() -> None:
    with metering():
        async with observe_event_loop("driver"):
            state = driver_metrics()
            assert state is not None
            state.admission = state.turns = state.input_items = Kept()
            state.write_bytes = Kept()
            async with MeteredAdmission(asyncio.Semaphore(1), state):
                pass
            record_sizes({"response": b'{"output":[{"type":"message"}]}'})
            state.writes.record_all([(17, 0.5)])

    [_wait, input_items, turns] = state.turns.readings
    assert (input_items, turns) == (0, 1)
    assert state.write_bytes.readings == [17]


@pytest.mark.parametrize(
    "broken",
    [
        {"admission": Raising(RuntimeError("no"))},
        {"admission": None},
        {"driver": None},
        {"driver": Unwilling(RuntimeError("no"))},
    ],
    ids=["recorder", "no-recorder", "no-counts", "counts"],
)
async def test_a_failure_of_telemetry_is_logged_and_keeps_no_place(
    broken: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    state, limit, entered = observed(**broken), asyncio.Semaphore(1), 0
    admission = MeteredAdmission(limit, state)

    for _ in range(3):
        async with admission:
            entered += 1
            assert await count_resident(asyncio.sleep(0, "rewarded"), state) == "rewarded"

    assert (entered, limit.locked()) == (3, False)
    assert "could not be" in caplog.text
    if state.driver is not None:
        assert (state.driver.active, state.driver.resident) == (0, 0)


async def test_a_missing_recorder_is_a_failure_like_others() -> None:
    state, limit = SimpleNamespace(driver=DriverCounts()), asyncio.Semaphore(1)

    async with MeteredAdmission(limit, state):
        inside = state.driver.active

    assert (inside, state.driver.active, limit.locked()) == (1, 0, False)


@pytest.mark.parametrize("kind", [asyncio.CancelledError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["admission", "driver"])
async def test_what_is_no_failure_goes_on_and_keeps_no_place_either(
    kind: type[BaseException], where: str
) -> None:
    broken = Raising(kind()) if where == "admission" else Unwilling(kind())
    state, limit = observed(**{where: broken}), asyncio.Semaphore(1)

    with pytest.raises(kind):
        await MeteredAdmission(limit, state).__aenter__()

    assert (state.driver.active, limit.locked()) == (0, False)


async def test_who_was_not_counted_in_is_not_counted_out() -> None:
    counts = Unwilling(RuntimeError("no"))
    state = observed(driver=counts)
    admission = MeteredAdmission(asyncio.Semaphore(2), state)

    async with admission:
        counts.__dict__["refuses"] = False
        async with admission:
            both = counts.active

    assert both == 1
    assert counts.active == 0


async def test_a_wait_that_is_cancelled_counts_nobody_and_keeps_no_place() -> None:
    state, limit = observed(), asyncio.Semaphore(1)
    admission = MeteredAdmission(limit, state)

    async def rollout() -> None:
        async with admission:
            await asyncio.sleep(60)

    async with admission:
        waiting = asyncio.create_task(rollout())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        during = state.driver.active

    assert (during, state.driver.active, limit.locked()) == (1, 0, False)
    assert len(state.admission.readings) == 1


async def test_a_limit_that_swallows_an_error_still_does() -> None:
    class Forgiving:
        async def __aenter__(self) -> None:
            pass

        async def __aexit__(self, *_exc_info: object) -> bool:
            return True

    state = observed()

    async with MeteredAdmission(Forgiving(), state):
        raise ValueError("forgiven")

    assert state.driver.active == 0
