"""A real scrape, read by the official parser; several processes as one text."""

import asyncio
import gc
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nemo_gym.telemetry.exposition import CONTENT_TYPE, Exposition, merge_expositions
from nemo_gym.telemetry.observer import driver_metrics, observe_event_loop, request_counts
from nemo_gym.telemetry.providers import TelemetryHandle, start_telemetry
from nemo_gym.telemetry.work import tool_call_ended

SETTINGS = {"metrics": {"enabled": True, "sample_interval_s": 0.01}}


@pytest.fixture
def handle() -> Iterator[TelemetryHandle]:
    started = start_telemetry(SETTINGS, service_name="nemo_gym.cell", instance="cell-0")
    yield started
    started.shutdown()


def get(url: str) -> tuple[int, str, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - loopback
            return response.status, response.headers["content-type"], response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["content-type"], error.read().decode()


def values(text: str, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    return {
        tuple(sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


async def test_a_scrape_is_read_by_the_official_parser(handle: TelemetryHandle) -> None:
    async with observe_event_loop("server"):
        counts = request_counts()
        assert counts is not None
        counts.count_response(200)
        counts.count_response(503)
        counts.count_cancellation("/run", response_started=False)
        tool_call_ended("send_mail", 0.5)
        await asyncio.sleep(0.05)
        assert handle.scrape_url is not None
        status, kind, text = await asyncio.to_thread(get, handle.scrape_url)

    assert (status, kind) == (200, CONTENT_TYPE)
    assert values(text, "gym_server_responses_total") == {
        (("http_response_status_code", "200"),): 1,
        (("http_response_status_code", "503"),): 1,
    }
    cancelled = (("http_route", "/run"), ("nemo_gym_request_phase", "before_response_start"))
    assert values(text, "gym_server_requests_cancelled_total") == {cancelled: 1}
    assert values(text, "process_cpu_time_seconds_total").keys() == {
        (("cpu_mode", "user"),),
        (("cpu_mode", "system"),),
    }
    assert values(text, "gen_ai_execute_tool_duration_seconds_count") == {
        (("gen_ai_tool_name", "send_mail"),): 1
    }
    [identity] = values(text, "target_info")
    assert dict(identity)["service_instance_id"] == handle.instance_id


async def observed_scrape(handle: TelemetryHandle) -> str:
    """Return what a scrape gives once an observer that starts here has recorded lag and pauses."""
    async with observe_event_loop("server"):
        state = driver_metrics()
        assert state is not None
        state.requests.count_response(200)
        gc.collect()
        async with asyncio.timeout(5):
            while not state.lags.recent:  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.005)
        assert handle.scrape_url is not None
        _, _, text = await asyncio.to_thread(get, handle.scrape_url)
    return text


def told_twice(text: str) -> list[object]:
    """Return the families, and the samples by name and labels, that are in a scrape repeatedly."""
    families = list(text_string_to_metric_families(text))
    samples = [
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in families
        for sample in family.samples
    ]
    told = Counter[object]([*(family.name for family in families), *samples])
    return [name for name, times in told.items() if times > 1]


async def test_an_observer_that_starts_again_is_told_once_in_a_scrape(
    handle: TelemetryHandle,
) -> None:
    scrapes = [await observed_scrape(handle) for _ in range(4)]
    scrapes.append(handle.exposition())

    assert [told_twice(text) for text in scrapes] == [[]] * 5
    for text in scrapes[:4]:
        assert list(values(text, "gym_server_responses_total").values()) == [1]
        assert len(values(text, "gym_event_loop_lag_ms_count")) == 1


async def test_telemetry_that_starts_again_is_told_once_in_a_scrape(
    handle: TelemetryHandle,
) -> None:
    await observed_scrape(handle)
    handle.shutdown()
    again = start_telemetry(SETTINGS, service_name="nemo_gym.cell", instance="cell-0")
    text = await observed_scrape(again)
    again.shutdown()

    assert told_twice(text) == []
    assert list(values(text, "gym_server_responses_total").values()) == [1]


async def test_every_seed_family_has_its_type(handle: TelemetryHandle) -> None:
    async with observe_event_loop("server"):
        await asyncio.sleep(0.05)
        text = handle.exposition()

    types = {family.name: family.type for family in text_string_to_metric_families(text)}
    assert types["gym_event_loop_lag_ms"] == "histogram"
    assert types["gym_gc_collections"] == "counter"
    assert types["gym_gc_count"] == "gauge"
    assert types["process_memory_usage_bytes"] == "gauge"


def test_only_metrics_are_served(handle: TelemetryHandle) -> None:
    assert handle.scrape_url is not None

    assert get(handle.scrape_url.replace("/metrics", "/config"))[0] == 404


def test_two_scrapes_find_the_same_totals(handle: TelemetryHandle) -> None:
    tool_call_ended("send_mail", 0.5)

    name = "gen_ai_execute_tool_duration_seconds_count"
    assert values(handle.exposition(), name) == values(handle.exposition(), name) != {}


def test_the_port_is_given_back(handle: TelemetryHandle) -> None:
    assert handle.scrape_url is not None

    handle.shutdown()

    with pytest.raises(urllib.error.URLError):
        get(handle.scrape_url)


OTHER_PROCESS = """
from nemo_gym.telemetry.providers import start_telemetry
from nemo_gym.telemetry.work import tool_call_ended
handle = start_telemetry({"metrics": {"enabled": True}}, service_name="s", instance="cell-1")
for _ in range(3):
    tool_call_ended("send_mail", 0.1)
print(handle.exposition())
handle.shutdown()
"""


def test_processes_of_a_run_are_one_text_told_apart_by_instance(handle: TelemetryHandle) -> None:
    tool_call_ended("send_mail", 0.5)
    other = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout

    merged = merge_expositions(
        [
            Exposition(handle.exposition(), {"nemo_gym_process": "cell-0"}),
            Exposition(other, {"nemo_gym_process": "cell-1"}),
        ]
    )

    counts = values(merged, "gen_ai_execute_tool_duration_seconds_count")
    by_process = {dict(labels)["nemo_gym_process"]: count for labels, count in counts.items()}
    assert by_process == {"cell-0": 1, "cell-1": 3}
