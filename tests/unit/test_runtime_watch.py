"""What a process of a run answers of its own work, by what its telemetry exports."""

import os
from typing import Any

import pytest

from nemo_gym.runtime.watch import ProcessTelemetry, metrics_of
from nemo_gym.telemetry.providers import start_telemetry

NOWHERE = {"otlp": {"endpoint": "http://127.0.0.1:9"}}


@pytest.mark.parametrize(
    ("settings", "answered"),
    [
        ({}, False),
        ({"traces": {"enabled": True}, **NOWHERE}, False),
        ({"metrics": {"enabled": True}}, True),
    ],
    ids=["off", "traces-alone", "metrics"],
)
def test_the_head_answers_for_metrics_only_where_they_are_on(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], answered: bool
) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    handle = start_telemetry(settings, service_name="nemo_gym.driver", instance="driver")

    answer = metrics_of(ProcessTelemetry("driver", handle), {})
    handle.shutdown()

    assert (answer is not None) is answered
