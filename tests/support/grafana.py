"""The Grafana dashboard of the product, taken apart: panels, queries, what a query asks for."""

import json
import re
from importlib.resources import files
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

__all__ = [
    "ADDED_BY_PROMETHEUS",
    "DASHBOARD",
    "FOLDER",
    "PANELS",
    "QUERIES",
    "labels_in",
    "metrics_of",
]

FOLDER = files("nemo_gym.telemetry").joinpath("dashboards")
DASHBOARD: dict[str, Any] = json.loads(FOLDER.joinpath("nemo_gym_run.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [(p["title"], t["expr"]) for p in PANELS for t in p["targets"]]
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
