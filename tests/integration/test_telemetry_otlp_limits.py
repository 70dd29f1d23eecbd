"""What a provider may say of tokens, and OTLP cannot: the rest arrives all the same."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from nemo_gym.telemetry.model_calls import model_call_started
from nemo_gym.telemetry.providers import start_telemetry
from nemo_gym.telemetry.tracing import span
from nemo_gym.telemetry.work import rollout_finished
from support.collector import Received, grpc_collector, http_collector

MOST = (1 << 63) - 1


@pytest.fixture(autouse=True)
def _no_otel_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("collector", "protocol"), [(http_collector, "http"), (grpc_collector, "grpc")]
)
def test_counts_beyond_what_the_protocol_can_say_keep_nothing_else_from_arriving(
    collector: Callable[[], AbstractContextManager[Received]], protocol: str
) -> None:
    with collector() as received:
        settings = {
            "metrics": {"enabled": True},
            "traces": {"enabled": True},
            "otlp": {"endpoint": received.endpoint, "protocol": protocol},
        }
        handle = start_telemetry(settings, service_name="nemo_gym.cell", instance="cell-0")
        rollout_finished("rewarded", 2.0)
        for _ in range(3):
            with span("rollout", root=True), model_call_started("openai", "gpt-5") as call:
                call.tokens((3 * MOST, MOST, MOST, None, None))
        handle.shutdown()

    counted = {
        _attributes(point)["nemo.gym.token.kind"]: point.as_int
        for point in received.points("gym.model.tokens_total")
    }
    [finished] = received.points("gym.driver.rollouts.finished_total")
    chats = [_attributes(one) for one in received.spans() if one.name == "chat gpt-5"]
    assert counted == {"input": MOST, "output": MOST, "cache_read": MOST}
    assert finished.as_int == 1
    assert [chat["gen_ai.usage.input_tokens"] for chat in chats] == [MOST] * 3


def _attributes(told: Any) -> dict[str, Any]:
    """Return the attributes of a point or a span of OTLP."""
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in told.attributes
    }
