"""Signals: answered by the loop, and by a thread where the loop cannot."""

import asyncio
import signal
import threading
import time

import pytest

from nemo_gym.cli.interrupts import Interrupts, signals_that_end

PATIENCE_S = 0.05


class _Command:
    """Keeps what it was told; `last` says whether a signal leaves nothing to finish."""

    def __init__(self, *, last: bool) -> None:
        self.last = last
        self.answered: list[int] = []
        self.left = threading.Event()

    def interrupts(self, patience_s: float = PATIENCE_S) -> Interrupts:
        return Interrupts(self.answered.append, lambda _: self.last, self.left.set, patience_s)


def _block(seconds: float) -> None:
    """Hold the event loop, as a verifier that computes does."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_is_answered_by_the_loop_in_its_turn(number: signal.Signals) -> None:
    command = _Command(last=False)

    with command.interrupts():
        signal.raise_signal(number)
        before = list(command.answered)
        await asyncio.sleep(0)

        assert before == []
        assert command.answered == [number]
        assert not command.left.is_set()


async def test_a_second_signal_that_the_loop_cannot_answer_ends_the_process() -> None:
    command = _Command(last=False)

    with command.interrupts():
        signal.raise_signal(signal.SIGINT)
        _block(3 * PATIENCE_S)
        after_one = command.left.is_set()
        signal.raise_signal(signal.SIGINT)
        _block(6 * PATIENCE_S)

        assert not after_one
        assert command.left.is_set()
        assert command.answered == []


async def test_a_signal_that_leaves_nothing_to_finish_is_not_repeated_to_a_blocked_loop() -> None:
    command = _Command(last=True)

    with command.interrupts():
        signal.raise_signal(signal.SIGTERM)
        _block(6 * PATIENCE_S)

        assert command.left.is_set()


async def test_a_loop_that_answers_late_but_in_time_is_left_alone() -> None:
    command = _Command(last=True)

    with command.interrupts(patience_s=1):
        signal.raise_signal(signal.SIGINT)
        _block(PATIENCE_S)
        await asyncio.sleep(1.2)

        assert command.answered == [signal.SIGINT]
        assert not command.left.is_set()


async def test_a_process_that_was_told_to_end_does_not_outlive_its_command_for_long() -> None:
    told, untold = _Command(last=False), _Command(last=False)

    with told.interrupts():
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
    with untold.interrupts():
        pass

    assert told.left.wait(5)
    assert not untold.left.is_set()


async def test_handlers_are_as_before_afterwards_and_nohup_is_honoured() -> None:
    before = signal.getsignal(signal.SIGINT)
    hang_up = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _Command(last=False).interrupts():
            assert signal.getsignal(signal.SIGINT) is not before
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.SIGHUP not in signals_that_end()
    finally:
        signal.signal(signal.SIGHUP, hang_up)

    assert signal.getsignal(signal.SIGINT) is before
