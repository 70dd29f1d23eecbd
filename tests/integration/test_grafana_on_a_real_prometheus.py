"""The dashboard on a Prometheus that scrapes a real run: its queries, asked as Grafana does."""

import asyncio
import math
import re
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.busy_run import BusyRun, busy_run
from support.grafana import (
    NEEDS_A_FAILING_DISK,
    PANELS,
    VARIABLES,
    chosen_by_name,
    filled_in,
    labels_of_legend,
    metrics_of,
    written_legend,
)
from support.prometheus import SCRAPE_INTERVAL_S, Answered, Prometheus, prometheus

pytestmark = [
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="prometheus is not here; scripts/ci-tools has it"
    ),
    pytest.mark.slow,  # Prometheus looks for its targets five seconds after its start
]

CHOICES = ("everything", "each by name")
"""What a user can choose at the top of the dashboard: "All", or some of what is listed there."""
RATE_INTERVAL = f"{4 * SCRAPE_INTERVAL_S:.0f}s"
"""What Grafana takes for `$__rate_interval` unless the points of a panel are far apart."""
TARGETS = [
    pytest.param(target, id=f"{panel['title']} {target['refId']}")
    for panel in PANELS
    for target in panel["targets"]
]
Answers = Mapping[tuple[str, str], Answered]
"""What Prometheus answered, by choice and query."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at everything that the dashboard asks for."""

    address: str
    """Where the run's head server listens."""
    target: Mapping[str, Any]
    scrapes: int
    """How many succeeded."""
    scraped: int
    """Samples of the last scrape."""
    stored: int
    """Series of the last scrape."""
    complaints: list[str]
    listed: Answers = field(repr=False)
    """By choice and variable."""
    drawn: Answers = field(repr=False)

    def settled(self) -> bool:
        """Say whether a later look would show nothing else."""
        missing = [
            expression
            for (_, expression), answer in self.drawn.items()
            if answer.status == "success"
            and not needs_a_failing_disk(expression)
            and not points_of(answer)
        ]
        scraped = self.target.get("health") == "up" and self.scraped > 0
        return self.scrapes >= 3 and scraped and not missing


def points_of(answer: Answered) -> list[float]:
    """Return every value that Grafana draws: NaN is a gap."""
    values = [float(value) for each in answer.series for _, value in each["values"]]
    return [value for value in values if not math.isnan(value)]


def needs_a_failing_disk(expression: str) -> bool:
    return any(name in NEEDS_A_FAILING_DISK for name, _ in metrics_of(expression))


async def listed_values(server: Prometheus, choice: str) -> tuple[Answers, dict[str, str]]:
    """Ask for the list of each variable, in order; return what is chosen of it, too."""
    answers: dict[tuple[str, str], Answered] = {}
    values: dict[str, str] = {}
    for variable in VARIABLES:
        asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        assert asked is not None
        answer = await server.ask(f"label/{asked[2]}/values", match=filled_in(asked[1], values))
        answers[choice, variable["name"]] = answer
        everything: str = variable["allValue"]
        values[variable["name"]] = (
            everything if choice == "everything" else chosen_by_name(answer.data or [])
        )
    return answers, values


async def look(server: Prometheus, run: BusyRun, since: float) -> Seen:
    """Ask for all that the dashboard shows, and for how the scrapes went."""
    listed: dict[tuple[str, str], Answered] = {}
    drawn: dict[tuple[str, str], Answered] = {}
    window = {"start": since, "end": time.time(), "step": SCRAPE_INTERVAL_S}
    for choice in CHOICES:
        answers, values = await listed_values(server, choice)
        listed |= answers
        for target in (target for panel in PANELS for target in panel["targets"]):
            query = filled_in(target["expr"], {**values, "__rate_interval": RATE_INTERVAL})
            drawn[choice, target["expr"]] = await server.ask("query_range", query=query, **window)
    [target] = (await server.ask("targets")).data["activeTargets"] or [{}]
    asked = await server.ask("query", query="scrape_samples_scraped[5m]")
    counts = [(at, int(value)) for each in asked.series for at, value in each["values"]]
    last, scraped = counts[-1] if counts else (since, 0)
    own = '{job="nemo_gym",__name__!~"up|scrape_.+"}'
    stored = (await server.ask("query", query=f"count({own})", time=last)).series
    return Seen(
        address=run.head.removeprefix("http://"),
        target=target,
        scrapes=sum(samples > 0 for _, samples in counts),
        scraped=scraped,
        stored=int(stored[0]["value"][1]) if stored else 0,
        complaints=server.complaints(),
        listed=listed,
        drawn=drawn,
    )


async def watched_run(folder: Path) -> Seen:
    """Return a look at a run through Prometheus, once everything can be seen."""
    async with (
        busy_run(folder) as run,
        prometheus(folder, run.head.removeprefix("http://")) as server,
    ):
        since = time.time()
        seen = await look(server, run, since)
        with suppress(TimeoutError):  # the tests below say what is missing
            await run.leave_a_call()
            async with asyncio.timeout(20):
                while not seen.settled():
                    # A quantile is of what was counted between two scrapes.
                    await run.stream_an_answer()
                    await asyncio.sleep(0.1)
                    seen = await look(server, run, since)
    return seen


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return asyncio.run(watched_run(tmp_path_factory.mktemp("run")))


def test_prometheus_scrapes_a_head_server_without_complaint(seen: Seen) -> None:
    assert seen.target.get("health") == "up", seen.target
    assert seen.target["labels"] == {"instance": seen.address, "job": "nemo_gym"}
    assert seen.scrapes >= 3
    assert seen.complaints == []


def test_each_sample_of_a_scrape_is_a_series_of_its_own(seen: Seen) -> None:
    assert seen.stored == seen.scraped > 0


@pytest.mark.parametrize("choice", CHOICES)
def test_the_runs_and_their_processes_are_listed_to_choose_from(seen: Seen, choice: str) -> None:
    listed = {variable: a.data for (chosen, variable), a in seen.listed.items() if chosen == choice}

    assert listed == {"instance": [seen.address], "process": ["cell-0", "cell-1", "driver"]}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("target", TARGETS)
def test_a_query_is_answered_with_what_its_legend_names(
    seen: Seen, target: dict[str, Any], choice: str
) -> None:
    answer = seen.drawn[choice, target["expr"]]

    assert answer.status == "success", answer.error
    if needs_a_failing_disk(target["expr"]):
        assert answer.series == []
        return
    assert points_of(answer)
    for series in answer.series:
        assert labels_of_legend(target["legendFormat"]) <= series["metric"].keys()


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_no_two_lines_of_a_panel_have_the_same_name(seen: Seen, panel: dict[str, Any]) -> None:
    names = [
        written_legend(target["legendFormat"], series["metric"])
        for target in panel["targets"]
        for series in seen.drawn["everything", target["expr"]].series
    ]

    assert len(names) == len(set(names)) > 0
