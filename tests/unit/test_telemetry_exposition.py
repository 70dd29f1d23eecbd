"""Names under which Prometheus knows the instruments, and the merging of empty texts."""

import re

import pytest

from nemo_gym.telemetry.exposition import Exposition, merge_expositions, prometheus_name
from nemo_gym.telemetry.observer import _Instruments
from nemo_gym.telemetry.recorded import Recorded
from nemo_gym.telemetry.recorded_instruments import register
from support.meters import NotingMeter


@pytest.mark.parametrize(
    ("instrument", "unit", "counter", "expected"),
    [
        ("gym.event_loop.lag_ms", "ms", False, "gym_event_loop_lag_ms"),
        ("gym.gc.collections_total", "{collection}", True, "gym_gc_collections_total"),
        ("process.cpu.time", "s", True, "process_cpu_time_seconds_total"),
        ("process.memory.usage", "By", False, "process_memory_usage_bytes"),
        ("process.thread.count", "{thread}", False, "process_thread_count"),
        ("gym.driver.output_write_bytes", "By", False, "gym_driver_output_write_bytes"),
        (
            "gen_ai.client.operation.duration",
            "s",
            False,
            "gen_ai_client_operation_duration_seconds",
        ),
        ("gym.server.responses_total", "{response}", True, "gym_server_responses_total"),
    ],
    ids=str,
)
def test_a_name_follows_the_rules_for_prometheus(
    instrument: str, unit: str, counter: bool, expected: str
) -> None:
    assert prometheus_name(instrument, unit, counter=counter) == expected


def test_nothing_merges_to_nothing() -> None:
    assert merge_expositions([]) == ""
    assert merge_expositions([Exposition(""), Exposition("\n", {"a": "b"})]) == ""


def test_a_sample_without_labels_gets_those_of_its_process() -> None:
    part = Exposition("# TYPE up gauge\nup 1\n", {"server": 'a"b'})

    assert merge_expositions([part]) == '# TYPE up gauge\nup{server="a\\"b"} 1\n'


def test_a_label_value_with_a_brace_is_no_second_set_of_labels() -> None:
    part = Exposition('# TYPE r gauge\nr{route="/{id}/run"} 2\n', {"i": "1"})

    assert merge_expositions([part]).splitlines()[1] == 'r{i="1",route="/{id}/run"} 2'


def through_otlp(instrument: str, unit: str, *, counter: bool) -> str:
    """Return the name that a collector, or Prometheus, gives an instrument that came by OTLP.

    As "Prometheus and OpenMetrics compatibility" of OpenTelemetry has it: the unit is added unless
    it is among the words of the name, and a counter ends in `_total`.
    """
    words = [word for word in re.split(r"[^A-Za-z0-9]+", instrument) if word]
    spelled = {"ms": "milliseconds", "s": "seconds", "By": "bytes"}.get(unit)
    if spelled is not None and spelled not in words:
        words.append(spelled)
    if counter:
        words = [*(word for word in words if word != "total"), "total"]
    return "_".join(words)


def test_names_differ_from_those_by_otlp_only_where_they_end_in_ms() -> None:
    meter, recorded = NotingMeter(), Recorded()
    _Instruments(meter)
    register(meter, recorded)
    held = [(h.described.name, h.described.unit, False) for h in recorded.histograms()]
    made = [*meter.made, *held]

    differing = {
        name
        for name, unit, counter in made
        if prometheus_name(name, unit, counter=counter) != through_otlp(name, unit, counter=counter)
    }
    assert len(made) > 40
    assert differing == {name for name, _, _ in made if name.endswith("_ms")} != set()
