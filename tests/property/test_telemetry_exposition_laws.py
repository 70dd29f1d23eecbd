"""Prometheus text: what is rendered and merged is read back the same by the official parser."""

from collections import Counter as Tally
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from nemo_gym.telemetry.exposition import Exposition, merge_expositions, prometheus_name, render

names = st.sampled_from(["gym.a", "gym.b.c", "gym.d_ms", "process.e"])
values = st.text(max_size=12)
labels = st.dictionaries(st.sampled_from(["http.route", "model", "x"]), values, max_size=3)
numbers = st.one_of(st.integers(0, 2**53), st.floats(allow_nan=False))


@dataclass
class Point:
    attributes: dict[str, str]
    value: float = 0.0
    bucket_counts: tuple[int, ...] = ()
    explicit_bounds: tuple[float, ...] = ()
    sum: float = 0.0


@dataclass
class Number:
    attributes: dict[str, str]
    value: float


@dataclass
class Data:
    data_points: list[Any]
    is_monotonic: bool = False


@dataclass
class Metric:
    name: str
    data: Data
    unit: str = ""
    description: str = ""


@dataclass
class Group:
    metrics: list[Metric] = field(default_factory=list)
    scope_metrics: list["Group"] = field(default_factory=list)
    resource_metrics: list["Group"] = field(default_factory=list)


def text(metrics: list[Metric], resource: dict[str, str] | None = None) -> str:
    scope = Group(metrics=metrics)
    return render(Group(resource_metrics=[Group(scope_metrics=[scope])]), resource or {})


def samples(exposition: str) -> Tally[Any]:
    return Tally(
        (sample.name, tuple(sorted(sample.labels.items())), repr(float(sample.value)))
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
    )


def gauges(points: list[tuple[str, dict[str, str], float]]) -> list[Metric]:
    return [Metric(name, Data([Number(labels, value)])) for name, labels, value in points]


points = st.lists(st.tuples(names, labels, numbers), max_size=5, unique_by=lambda p: p[0])


@given(points, labels)
def test_every_sample_is_read_back_with_its_labels_and_value(
    given_points: list[tuple[str, dict[str, str], float]], resource: dict[str, str]
) -> None:
    read = samples(text(gauges(given_points), resource))

    expected = {
        (
            prometheus_name(name, "", counter=False),
            tuple(sorted((k.replace(".", "_"), v) for k, v in given_labels.items())),
            repr(float(value)),
        )
        for name, given_labels, value in given_points
    }
    assert set(read) >= expected
    assert sum(read.values()) == len(given_points) + 1


@given(st.lists(points, max_size=4))
def test_a_merged_text_has_every_sample_of_each_process_under_its_own_labels(
    processes: list[list[tuple[str, dict[str, str], float]]],
) -> None:
    parts = [
        Exposition(text(gauges(one)), {"service_instance_id": f"cell-{number}"})
        for number, one in enumerate(processes)
    ]

    merged = merge_expositions(parts)

    expected: Tally[Any] = Tally()
    for number, part in enumerate(parts):
        for (name, found, value), count in samples(part.text).items():
            own = tuple(sorted((*found, ("service_instance_id", f"cell-{number}"))))
            expected[name, own, value] += count
    assert samples(merged) == expected


@given(st.lists(points, min_size=2, max_size=4))
def test_a_merged_text_names_each_family_once(
    processes: list[list[tuple[str, dict[str, str], float]]],
) -> None:
    parts = [Exposition(text(gauges(one)), {"i": str(n)}) for n, one in enumerate(processes)]

    lines = merge_expositions(parts).split("\n")

    types = [line for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types))


@given(st.lists(st.integers(0, 1000), min_size=3, max_size=3), st.floats(0, 1e9))
def test_a_histogram_is_cumulative_and_ends_in_its_count(counts: list[int], total: float) -> None:
    point = Point({"m": "x"}, bucket_counts=tuple(counts), explicit_bounds=(1.0, 2.5), sum=total)

    [family] = [
        f
        for f in text_string_to_metric_families(text([Metric("gym.lag_ms", Data([point]), "ms")]))
        if f.name == "gym_lag_ms"
    ]

    by_le = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}
    assert family.type == "histogram"
    assert by_le == {"1.0": counts[0], "2.5": sum(counts[:2]), "+Inf": sum(counts)}
    assert {s.value for s in family.samples if s.name.endswith("_count")} == {sum(counts)}
    assert {s.value for s in family.samples if s.name.endswith("_sum")} == {total}
