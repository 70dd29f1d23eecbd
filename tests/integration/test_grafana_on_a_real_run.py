"""The dashboard beside a real run: what its panels ask for is in a scrape of the head server."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from nemo_gym.transport.base import Call
from nemo_gym.transport.http import HttpTransport
from support.busy_run import busy_run
from support.grafana import (
    ADDED_BY_PROMETHEUS,
    DASHBOARD,
    NEEDS_A_FAILING_DISK,
    QUERIES,
    labels_in,
    metrics_of,
)


async def scrape(head: str) -> str:
    transport = HttpTransport(head)
    text = await (await transport.send(Call("GET", "/metrics"))).read()
    await transport.aclose()
    return text.decode()


async def scraped_run(folder: Path) -> str:
    """Return a scrape of a run once it has everything that the dashboard asks for."""
    wanted = {name for _, expression in QUERIES for name, _ in metrics_of(expression)}
    text = ""
    async with busy_run(folder) as run:
        with suppress(TimeoutError):  # the tests below say what is missing
            await run.stream_an_answer()
            await run.leave_a_call()
            async with asyncio.timeout(20):
                while wanted - NEEDS_A_FAILING_DISK - labels_in(text).keys():
                    await asyncio.sleep(0.1)
                    text = await scrape(run.head)
    return text


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    return labels_in(asyncio.run(scraped_run(tmp_path_factory.mktemp("run"))))


@pytest.mark.parametrize(("title", "expression"), QUERIES)
def test_a_panel_asks_for_what_a_real_run_exposes(
    exposed: dict[str, set[str]], title: str, expression: str
) -> None:
    for name, labels in metrics_of(expression):
        if name in NEEDS_A_FAILING_DISK:
            continue
        assert name in exposed, title
        assert labels - ADDED_BY_PROMETHEUS <= exposed[name], title


def test_the_processes_to_choose_from_are_labels_of_the_scrape(
    exposed: dict[str, set[str]],
) -> None:
    names = [variable["name"] for variable in DASHBOARD["templating"]["list"]]

    assert names[1:] == ["instance", "process"]
    assert "process" in exposed["target_info"]
