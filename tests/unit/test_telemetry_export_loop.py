"""The exporting thread: at its interval, on request, once more at the end, and never in the way."""

import logging
import threading
from collections.abc import Callable
from time import monotonic

import pytest

from nemo_gym.telemetry.export_loop import ExportLoop


class Exports:
    """An export that says what it is told to, and can be waited for."""

    def __init__(self, *, delivers: bool = True) -> None:
        self.delivers = delivers
        self.count = 0
        self.came = threading.Semaphore(0)

    def __call__(self) -> bool:
        self.count += 1
        self.came.release()
        return self.delivers


def test_it_exports_at_its_interval() -> None:
    exports = Exports()

    loop = ExportLoop("nowhere", 0.005, exports)
    came = [exports.came.acquire(timeout=5) for _ in range(3)]
    loop.stop(1.0)

    assert all(came)


def test_it_exports_on_request_and_says_when_that_is_done() -> None:
    exports = Exports()
    loop = ExportLoop("nowhere", 600, exports)

    done = loop.flush(5.0)
    count = exports.count
    loop.stop(1.0)

    assert (done, count) == (True, 1)


def test_it_exports_once_more_at_the_end() -> None:
    exports = Exports()
    loop = ExportLoop("nowhere", 600, exports)

    loop.stop(5.0)

    assert exports.count == 1


def test_an_export_that_hangs_is_cut_off_within_the_budget() -> None:
    released = threading.Event()
    aborted = threading.Event()

    def hang() -> bool:
        return released.wait(30)

    loop = ExportLoop("nowhere", 600, hang, abort=aborted.set)
    begun = monotonic()
    flushed = loop.flush(0.05)
    loop.stop(0.2)
    took = monotonic() - begun
    released.set()

    assert (flushed, aborted.is_set()) == (False, True)
    assert took < 1.0


def test_an_abort_that_hangs_itself_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    released = threading.Event()

    def hang() -> None:
        released.wait(30)

    loop = ExportLoop("nowhere", 600, lambda: released.wait(30), abort=hang)
    loop.flush(0.05)
    begun = monotonic()
    loop.stop(0.2)
    took = monotonic() - begun
    released.set()

    assert took < 2.0
    assert "does not reach nowhere (it does not answer)" in caplog.text


def test_a_target_that_cannot_be_reached_is_named_once_with_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    exports, told = Exports(delivers=False), list[str]()
    loop = ExportLoop(
        "the collector", 600, exports, reason=lambda: "connection refused", warned=told.append
    )

    for _ in range(5):
        loop.nudge()
        exports.came.acquire(timeout=5)
    exports.delivers = True
    loop.stop(1.0)

    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "the collector (connection refused)" in warnings[0]
    assert told == ["telemetry does not reach the collector (connection refused)"]
    assert "reaches the collector again" in caplog.text


def test_a_failing_target_is_not_waited_for() -> None:
    exports = Exports(delivers=False)
    loop = ExportLoop("nowhere", 600, exports)
    loop.flush(5.0)

    begun = monotonic()
    flushed = loop.flush(5.0)
    loop.stop(2.0)

    assert flushed is False
    assert monotonic() - begun < 2.0


def test_an_export_that_raises_is_one_that_was_not_delivered() -> None:
    def broken() -> bool:
        raise RuntimeError("encoding failed")

    loop = ExportLoop("nowhere", 600, broken)
    flushed = loop.flush(5.0)
    failing = loop.failing
    loop.stop(1.0)

    assert (flushed, failing) == (True, True)


@pytest.mark.parametrize("kind", [RuntimeError, OverflowError, MemoryError, SystemExit])
def test_whatever_one_export_raises_the_next_and_the_last_still_happen(
    kind: type[BaseException],
) -> None:
    exports = Exports()

    def first_raises() -> bool:
        if exports() and exports.count == 1:
            raise kind
        return True

    loop = ExportLoop("nowhere", 0.005, first_raises)
    came = [exports.came.acquire(timeout=5) for _ in range(2)]
    before = exports.count
    loop.stop(5.0)

    assert all(came)
    assert exports.count > before
    assert not loop.failing


def _unheard(_line: str) -> None:
    raise RuntimeError("nobody listens")


def _unknown() -> str:
    raise RuntimeError("nobody knows")


@pytest.mark.parametrize(
    ("reason", "warned"),
    [(_unknown, lambda _line: None), (lambda: "refused", _unheard)],
    ids=["no-reason", "nobody-told"],
)
def test_what_cannot_be_told_of_a_failure_keeps_no_export_from_happening(
    reason: Callable[[], str], warned: Callable[[str], None]
) -> None:
    exports = Exports(delivers=False)

    loop = ExportLoop("nowhere", 600, exports, reason=reason, warned=warned)
    flushed = loop.flush(5.0)
    loop.stop(5.0)

    assert (flushed, exports.count) == (True, 2)


@pytest.mark.parametrize("interval_s", [float("inf"), 1e12])
def test_an_interval_longer_than_any_wait_leaves_requests_and_the_last_export(
    interval_s: float,
) -> None:
    exports = Exports()

    loop = ExportLoop("nowhere", interval_s, exports)
    flushed = loop.flush(5.0)
    loop.stop(5.0)

    assert (flushed, exports.count) == (True, 2)
