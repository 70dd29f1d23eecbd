"""The Grafana dashboard: it can be provisioned, and asks only for metrics and labels that exist."""

import asyncio
import re
from typing import Any

import pytest
import yaml

from nemo_gym.telemetry.exposition import Exposition, merge_expositions
from nemo_gym.telemetry.live import server_counts
from nemo_gym.telemetry.model_calls import count_tokens, model_call_started
from nemo_gym.telemetry.observer import driver_metrics, observe_event_loop, request_counts
from nemo_gym.telemetry.providers import start_telemetry
from nemo_gym.telemetry.work import (
    capture_committed,
    capture_failed,
    connection_waited,
    rollout_finished,
    tool_call_ended,
)
from support.grafana import (
    ADDED_BY_PROMETHEUS,
    DASHBOARD,
    FOLDER,
    PANELS,
    QUERIES,
    labels_in,
    metrics_of,
)

NO_METRIC = {
    "by",
    "sum",
    "max",
    "rate",
    "le",
    "histogram_quantile",
    "__rate_interval",
    "process",
    "instance",
}


async def exercise() -> None:
    """Record once on every instrument."""
    async with observe_event_loop("server"):
        state, counts = driver_metrics(), request_counts()
        assert state is not None
        assert counts is not None
        state.driver.offered += 1
        for histogram in (state.admission, state.materialize, state.write_duration):
            histogram.record(1.0)
        for histogram in (state.write_bytes, state.input_items, state.output_items):
            histogram.record(1.0)
        for histogram in (state.turns, state.tool_calls):
            histogram.record(1.0)
        state.gc_pause.record(1.0, {"nemo.gym.gc.generation": 2})
        counts.count_response(200)
        counts.count_cancellation("/run", response_started=True)
        server_counts("mcqa").requests += 1
        call = model_call_started("openai", "m", stream=True)
        call.retried("429")
        call.first_chunk()
        call.ended("timeout")
        count_tokens("openai", "m", tokens_in=1, tokens_out=1)
        capture_committed(1, 1, 0.1)
        capture_failed("ENOSPC")
        connection_waited(0.1, "http://h:1")
        rollout_finished("rewarded", 1.0)
        tool_call_ended("t", 0.1, "timeout")
        await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def exposed() -> dict[str, set[str]]:
    """Return the label names of every sample that a run exposes."""
    settings = {"metrics": {"enabled": True, "sample_interval_s": 0.01}}
    handle = start_telemetry(settings, service_name="nemo_gym.driver", instance="driver")

    async def exercised() -> str:
        async with observe_event_loop("outer"):
            await exercise()
            return handle.exposition()

    text = merge_expositions([Exposition(asyncio.run(exercised()), {"process": "driver"})])
    handle.shutdown()
    return labels_in(text)


@pytest.mark.parametrize(("title", "expression"), QUERIES)
def test_a_query_asks_only_for_what_exists(
    exposed: dict[str, set[str]], title: str, expression: str
) -> None:
    asked = metrics_of(expression)

    assert asked, title
    for name, labels in asked:
        assert name in exposed, f"{title}: no metric {name}"
        assert labels - ADDED_BY_PROMETHEUS <= exposed[name], title


def test_every_word_of_a_query_is_a_metric_or_known() -> None:
    words = {
        word
        for _, expression in QUERIES
        for word in re.findall(r"[A-Za-z_]+", re.sub(r"\{[^}]*\}|by \([^)]*\)", "", expression))
    }
    metrics = {name for _, expression in QUERIES for name, _ in metrics_of(expression)}

    assert words <= metrics | NO_METRIC


def test_panels_do_not_overlap_and_fit_the_grid() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + dx, place["y"] + dy)
            for dx in range(place["w"])
            for dy in range(place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_ids_are_unique_and_the_datasource_is_chosen_by_the_user() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    sources = {t["datasource"]["uid"] for p in PANELS for t in p["targets"]}

    assert len(ids) == len(set(ids))
    assert sources == {"${datasource}"}
    assert "id" not in DASHBOARD


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_has_what_grafana_needs_to_draw_it(panel: dict[str, Any]) -> None:
    letters = [target["refId"] for target in panel["targets"]]
    unit = panel["fieldConfig"]["defaults"]["unit"]

    assert panel["type"] == "timeseries"
    assert panel["title"]
    assert panel["description"]
    assert len(set(letters)) == len(letters) >= 1
    assert all(target["legendFormat"] for target in panel["targets"])
    assert panel["fieldConfig"]["overrides"] == []
    assert unit in UNITS
    for target in panel["targets"]:
        [(name, _), *_] = metrics_of(target["expr"])
        assert unit_of(target["expr"], name) in {unit, None}


UNITS = {"short", "ms", "s", "bytes", "ops", "reqps", "percentunit", "percent"}
"""Ids of Grafana's units that the panels use."""


def unit_of(expression: str, name: str) -> str | None:
    """Return the unit that a query's name says, None where it says none."""
    if not expression.startswith("histogram_quantile"):
        return None
    base = name.removesuffix("_bucket")
    return "ms" if base.endswith("_ms") else "s" if base.endswith("_seconds") else None


def test_every_variable_of_a_query_is_one_that_the_dashboard_asks_for() -> None:
    listed = [variable["name"] for variable in DASHBOARD["templating"]["list"]]
    asked = {found for _, expression in QUERIES for found in re.findall(r"\$(\w+)", expression)}
    asked |= {
        found
        for variable in DASHBOARD["templating"]["list"]
        for found in re.findall(r"\$\{?(\w+)", str(variable.get("definition", "")))
    }

    assert listed == ["datasource", "instance", "process"]
    assert asked - {"__rate_interval"} == {"instance", "process"}


def test_a_variable_is_filled_from_labels_that_a_scrape_has(
    exposed: dict[str, set[str]],
) -> None:
    queries = [v["query"]["query"] for v in DASHBOARD["templating"]["list"][1:]]
    asked = [re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", query) for query in queries]

    for found in asked:
        assert found is not None
        assert found[2] in exposed[found[1]] | ADDED_BY_PROMETHEUS
    assert all(v["allValue"] == ".*" for v in DASHBOARD["templating"]["list"][1:])


def test_every_instrument_has_a_panel_or_a_reason(exposed: dict[str, set[str]]) -> None:
    shown = {name for _, expression in QUERIES for name, _ in metrics_of(expression)}
    stems = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    left = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exposed} - stems

    # Seen better in the live view, or of use only beside another panel.
    assert left <= {
        "target_info",
        "gym_gc_collections_total",
        "gym_gc_collected_total",
        "gym_gc_uncollectable_total",
        "gym_gc",
        "gym_event_loop_tasks",
        "gym_driver_rollouts_offered_total",
        "gym_driver_output_write_bytes",
        "gym_driver_rollout_input_items",
        "gym_driver_rollout_output_items",
        "gym_driver_rollout_turns",
        "gym_driver_rollout_tool_calls",
        "gym_server_requests_in_flight",
        "gym_capture_commit_bytes",
        "gen_ai_client_token_usage",
        "process_thread",
        "process_open_file_descriptor",
    }


def test_the_provisioning_file_is_what_grafana_takes() -> None:
    provider = yaml.safe_load(FOLDER.joinpath("provider.yaml").read_text())

    assert provider["apiVersion"] == 1
    assert provider["providers"][0]["type"] == "file"
