"""Which signals leave for a real collector that a standard variable names."""

import os

import pytest

from nemo_gym.telemetry.providers import start_telemetry
from nemo_gym.telemetry.tracing import span
from nemo_gym.telemetry.work import tool_call_ended
from support.collector import http_collector

BOTH = {"metrics": {"enabled": True}, "traces": {"enabled": True}}
TOOLS = "gen_ai.execute_tool.duration"


@pytest.mark.parametrize(
    ("without", "metrics", "spans"),
    [
        ((), True, True),
        (("METRICS",), False, True),
        (("TRACES",), True, False),
        (("METRICS", "TRACES"), False, False),
    ],
    ids=["both", "no-metrics", "no-traces", "neither"],
)
def test_a_signal_whose_exporter_is_none_stays_here(
    monkeypatch: pytest.MonkeyPatch, without: tuple[str, ...], metrics: bool, spans: bool
) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    for signal in without:
        monkeypatch.setenv(f"OTEL_{signal}_EXPORTER", "none")
    with http_collector() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint)
        handle = start_telemetry(BOTH, service_name="s", instance="i")
        with span("rollout", root=True):
            tool_call_ended("send_mail", 0.5)
        scraped = handle.exposition()
        handle.shutdown()

    assert (TOOLS in received.names(), bool(received.spans())) == (metrics, spans)
    assert (handle.scrape_url is None) is metrics
    assert "gen_ai_execute_tool_duration" in scraped
