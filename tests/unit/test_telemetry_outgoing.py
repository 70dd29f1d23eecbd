"""Readings on their way to a collector: kept ones first, none lost to one that fails or hangs."""

import threading

from nemo_gym.telemetry.outgoing import Outgoing


class Collector:
    """Takes readings while `up`, a number each."""

    def __init__(self) -> None:
        self.up = True
        self.came: list[int] = []

    def send(self, reading: int) -> bool:
        if self.up:
            self.came.append(reading)
        return self.up


def counting() -> tuple[Collector, Outgoing[int]]:
    collector, numbers = Collector(), iter(range(1, 100))
    return collector, Outgoing(lambda: next(numbers), collector.send)


def test_what_is_held_at_an_export_is_sent() -> None:
    collector, outgoing = counting()

    assert (outgoing.export(), outgoing.export()) == (True, True)
    assert collector.came == [1, 2]


def test_what_was_kept_is_sent_once_and_before_what_is_held_now() -> None:
    collector, outgoing = counting()
    outgoing.keep()

    assert (outgoing.export(), outgoing.export()) == (True, True)
    assert collector.came == [1, 2, 3]


def test_what_was_kept_waits_for_a_collector_that_takes_it() -> None:
    collector, outgoing = counting()
    outgoing.keep()
    collector.up = False
    missed = outgoing.export()
    collector.up = True

    assert (missed, outgoing.export()) == (False, True)
    assert collector.came == [1, 3]


def test_only_the_latest_are_kept() -> None:
    collector, outgoing = counting()
    outgoing.keep()
    outgoing.keep()

    outgoing.export()

    assert collector.came == [2, 3]


def test_keeping_waits_for_no_collector_and_loses_nothing_to_one_that_hangs() -> None:
    came: list[int] = []
    numbers, hangs, goes_on = iter(range(1, 100)), threading.Event(), threading.Event()

    def send(reading: int) -> bool:
        hangs.set()
        came.append(reading)
        return goes_on.wait(10)

    outgoing = Outgoing(lambda: next(numbers), send)
    outgoing.keep()
    exporter = threading.Thread(target=outgoing.export)
    exporter.start()
    hangs.wait(10)
    outgoing.keep()
    goes_on.set()
    exporter.join()
    outgoing.export()

    assert came == [1, 2, 3, 4]
