"""Metrics in, Prometheus text out; and several processes' texts in, one text out. Pure.

Names follow OpenTelemetry's rules for Prometheus: dots become underscores, the unit is spelled out
unless the name ends in it already (`_ms` counts), and counters end in `_total`.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CONTENT_TYPE", "Exposition", "merge_expositions", "prometheus_name", "render"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_UNITS = {"s": "seconds", "ms": "milliseconds", "By": "bytes"}
_SPELLED = {"ms": ("_ms", "_milliseconds"), "By": ("_bytes",), "s": ("_seconds",)}
_PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="(?:[^"\\]|\\.)*"')
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Exposition:
    """The text of one process, and what tells its samples from those of others."""

    text: str
    labels: Mapping[str, str] = field(default_factory=dict)


def prometheus_name(instrument: str, unit: str, *, counter: bool) -> str:
    """Return the name under which Prometheus knows an instrument; without a histogram's parts."""
    name = re.sub(r"[^a-zA-Z0-9_:]", "_", instrument)
    base = name.removesuffix("_total")
    suffix = _UNITS.get(unit)
    if suffix is not None and not base.endswith(_SPELLED[unit]):
        base = f"{base}_{suffix}"
    return f"{base}_total" if counter else base if suffix else name


def render(data: Any, resource: Mapping[str, object]) -> str:
    """Return the text for `data`, an SDK `MetricsData`; `resource` becomes `target_info`."""
    lines = ["# HELP target_info what is measured", "# TYPE target_info gauge"]
    lines.append(f"target_info{_labels(resource)} 1")
    for group in data.resource_metrics:
        for scope in group.scope_metrics:
            for metric in scope.metrics:
                lines += _family(metric)
    return "\n".join(lines) + "\n"


def merge_expositions(parts: Iterable[Exposition]) -> str:
    """Return one text: each family once, every sample with the labels of its process added.

    A label that a sample has already stays as it is.
    """
    families: dict[str, tuple[list[str], list[str]]] = {}
    for part in parts:
        added = {_label(key): f'{_label(key)}="{_escaped(v)}"' for key, v in part.labels.items()}
        family, known = "", False
        for line in part.text.split("\n"):
            if line.startswith("# "):
                name = line.split(" ", 3)[2]
                if name != family:
                    family, known = name, name in families
                header = families.setdefault(family, ([], []))[0]
                if not known:
                    header.append(line)
            elif line:
                families.setdefault(family, ([], []))[1].append(_labelled(line, added))
    lines = [line for header, samples in families.values() for line in (*header, *samples)]
    return "\n".join(lines) + "\n" if lines else ""


def _labelled(line: str, added: Mapping[str, str]) -> str:
    name, brace, rest = line.partition("{")
    if not brace or " " in name:
        name, _, value = line.partition(" ")
        return f"{name}{{{','.join(added.values())}}} {value}" if added else line
    there = {found[1] for found in _PAIR.finditer(rest)}
    pairs = [pair for key, pair in added.items() if key not in there]
    comma = "," if pairs and not rest.startswith("}") else ""
    return f"{name}{{{','.join(pairs)}{comma}{rest}"


def _family(metric: Any) -> list[str]:
    data = metric.data
    counter = bool(getattr(data, "is_monotonic", False))
    points = list(data.data_points)
    histogram = bool(points) and hasattr(points[0], "bucket_counts")
    name = prometheus_name(metric.name, metric.unit or "", counter=counter)
    kind = "histogram" if histogram else "counter" if counter else "gauge"
    lines = [f"# HELP {name} {metric.description or metric.name}", f"# TYPE {name} {kind}"]
    for point in points:
        lines += _histogram(name, point) if histogram else [_sample(name, point)]
    return lines


def _sample(name: str, point: Any) -> str:
    return f"{name}{_labels(point.attributes)} {_number(point.value)}"


def _histogram(name: str, point: Any) -> list[str]:
    lines, so_far = [], 0
    for bound, count in zip((*point.explicit_bounds, math.inf), point.bucket_counts, strict=True):
        so_far += count
        labels = _labels({**point.attributes, "le": _number(float(bound))})
        lines.append(f"{name}_bucket{labels} {so_far}")
    labels = _labels(point.attributes)
    return [*lines, f"{name}_sum{labels} {_number(point.sum)}", f"{name}_count{labels} {so_far}"]


def _labels(attributes: Mapping[str, object]) -> str:
    if not attributes:
        return ""
    pairs = (f'{_label(key)}="{_escaped(value)}"' for key, value in attributes.items())
    return "{" + ",".join(pairs) + "}"


def _label(key: str) -> str:
    name = re.sub(r"[^a-zA-Z0-9_]", "_", key)
    return f"_{name}" if name[:1].isdigit() else name


def _escaped(value: object) -> str:
    return str(value).translate(_ESCAPES)


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
