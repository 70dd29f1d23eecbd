"""The Grafana dashboard of the product, taken apart: panels, queries, what a query asks for.

And put together as Grafana does it: variables filled in, legends written.
"""

import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

__all__ = [
    "ADDED_BY_PROMETHEUS",
    "DASHBOARD",
    "FOLDER",
    "NEEDS_A_FAILING_DISK",
    "PANELS",
    "QUERIES",
    "VARIABLES",
    "chosen_by_name",
    "filled_in",
    "labels_in",
    "labels_of_legend",
    "metrics_of",
    "written_legend",
]

FOLDER = files("nemo_gym.telemetry").joinpath("dashboards")
DASHBOARD: dict[str, Any] = json.loads(FOLDER.joinpath("nemo_gym_run.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [(p["title"], t["expr"]) for p in PANELS for t in p["targets"]]
VARIABLES = [v for v in DASHBOARD["templating"]["list"] if v["type"] == "query"]
NEEDS_A_FAILING_DISK = {"gym_capture_failures_total"}
"""Metrics that a run with a healthy disk does not have."""
ADDED_BY_PROMETHEUS = {"instance", "job"}
"""Labels that every scraped sample gets, whatever was exposed."""


def metrics_of(expression: str) -> list[tuple[str, set[str]]]:
    """Return each metric of a query with the labels that are asked of it or that it is split by."""
    plain = re.sub(r"\[[^]]*\]|\"[^\"]*\"", "", expression)
    split = {
        label
        for group in re.findall(r"by \(([^)]*)\)", plain)
        for label in group.replace(" ", "").split(",")
    }
    return [
        (name, split | set(re.findall(r"(\w+)\s*=~?", selector)))
        for name, selector in re.findall(r"([a-z_]+)\{([^}]*)\}", plain)
    ]


def labels_in(text: str) -> dict[str, set[str]]:
    """Return the label names of every sample in a Prometheus text, by the sample's name."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def filled_in(text: str, values: Mapping[str, str]) -> str:
    """Return a query with each variable replaced, `$name` and `${name}` alike."""
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: values[found[1] or found[2]], text)


def chosen_by_name(values: Sequence[str]) -> str:
    """Return what stands in a query for values that were ticked in a variable's list.

    Grafana escapes what a regular expression would read otherwise, and the backslash once more:
    a query has it in a quoted string.
    """
    escaped = [re.sub(r"[$^*{}\[\]'+?.()|]", r"\\\\\g<0>", value) for value in values]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


_OF_LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")


def labels_of_legend(legend: str) -> set[str]:
    """Return the labels whose values a legend shows."""
    return set(_OF_LEGEND.findall(legend))


def written_legend(legend: str, labels: Mapping[str, str]) -> str:
    """Return the name that a series with these labels gets in its panel."""
    return _OF_LEGEND.sub(lambda found: labels.get(found[1], ""), legend)
