"""The meter a process exports through: plain histograms, everything else handed on."""

from nemo_gym.telemetry.plain_meter import PlainMeter
from nemo_gym.telemetry.series import OTHER


class Behind:
    """A meter that remembers what it was asked to make."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def create_gauge(self, name: str, unit: str = "") -> str:
        self.made.append(name)
        return f"{name} in {unit}"


def test_histograms_are_plain_and_kept_for_the_reader() -> None:
    meter = PlainMeter(Behind())

    lag = meter.create_histogram("lag", "ms", explicit_bucket_boundaries_advisory=(1.0, 10.0))
    lag.record(0.5, {"loop": "server"})
    lag.record(20.0, {"loop": "server"})
    lag.record(5.0)

    read = {tuple(labels.items()): reading.counts for labels, reading in lag.read()}
    assert meter.histograms == [lag]
    assert read == {(("loop", "server"),): (1, 0, 1), (): (0, 1, 0)}


def test_other_instruments_are_those_of_the_meter_behind() -> None:
    behind = Behind()

    assert PlainMeter(behind).create_gauge("tasks", unit="{task}") == "tasks in {task}"
    assert behind.made == ["tasks"]


def test_attributes_without_end_are_counted_as_other() -> None:
    meter = PlainMeter(Behind())
    lag = meter.create_histogram("lag", "ms", explicit_bucket_boundaries_advisory=(1.0,))

    for number in range(1000):
        lag.record(0.5, {"loop": f"loop-{number}"})

    read = {labels["loop"]: reading.count for labels, reading in lag.read()}
    assert len(read) <= lag.described.limit + 1
    assert read[OTHER] == 1000 - lag.described.limit
