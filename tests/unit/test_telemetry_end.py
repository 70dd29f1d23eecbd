"""The end of telemetry: bounded as a whole, for metrics and traces together, in every process."""

import os
import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from nemo_gym.runtime import processes
from nemo_gym.telemetry.exporting import set_exporting
from nemo_gym.telemetry.otlp import cause_in
from nemo_gym.telemetry.providers import SHUTDOWN_BUDGET_S
from nemo_gym.telemetry.settings import telemetry_options
from nemo_gym.telemetry.tracing import set_tracer

export = pytest.importorskip("nemo_gym.telemetry.export")

BOTH = {
    "metrics": {"enabled": True},
    "traces": {"enabled": True},
    "otlp": {"endpoint": "http://127.0.0.1:9", "protocol": "http"},
}


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return what exports metrics and traces, before any of it was tried."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    made = export.Running(telemetry_options(BOTH), "s", "i", lambda _line: None)
    yield made
    set_exporting(None)
    set_tracer(None)


class Loop:
    """Stands for an exporting thread; it ends once all of them are being stopped."""

    def __init__(self, together: threading.Barrier) -> None:
        self.together = together
        self.budgets: list[float] = []

    def stop(self, budget_s: float) -> None:
        self.budgets.append(budget_s)
        self.together.wait(10)


def test_what_may_wait_at_the_end_of_a_process_adds_up_to_less_than_two_seconds() -> None:
    assert export.FLUSH_S + SHUTDOWN_BUDGET_S <= 2.0


def test_a_server_has_ended_its_telemetry_before_its_parent_would_kill_it() -> None:
    assert export.FLUSH_S + SHUTDOWN_BUDGET_S < processes._STOP_GRACE_S


def test_metrics_and_traces_are_stopped_side_by_side_on_one_budget(running: Any) -> None:
    together = threading.Barrier(2)
    real, running._loops = running._loops, [Loop(together), Loop(together)]

    running.stop(monotonic() + SHUTDOWN_BUDGET_S)
    budgets = [budget for loop in running._loops for budget in loop.budgets]
    for loop in real:
        loop.stop(0.1)

    assert len(real) == len(budgets) == 2
    assert not together.broken
    assert all(0 < budget <= SHUTDOWN_BUDGET_S for budget in budgets)


def test_a_collector_of_metrics_and_traces_that_is_missed_is_told_once() -> None:
    told: list[str] = []
    tell = export._first_of(told.append)

    tell("metrics do not arrive")
    tell("traces do not arrive")

    assert told == ["metrics do not arrive"]


REFUSED_HTTP = (
    "Transient error HTTPConnectionPool(host='127.0.0.1', port=1): Max retries exceeded with url: "
    "/v1/metrics (Caused by NewConnectionError(\"HTTPConnection(host='127.0.0.1', port=1): Failed "
    'to establish a new connection: [Errno 111] Connection refused")) encountered while exporting '
    "metrics batch, retrying in 1.63s."
)
UNKNOWN_HTTP = (
    "Transient error HTTPConnectionPool(host='a.test', port=1): Max retries exceeded with url: "
    "/v1/metrics (Caused by NameResolutionError(\"HTTPConnection(host='a.test', port=1): Failed "
    "to resolve 'a.test' ([Errno -2] Name or service not known)\")) encountered while exporting "
    "metrics batch, retrying in 1.12s."
)
REFUSED_GRPC = (
    "Transient error StatusCode.UNAVAILABLE encountered while exporting metrics to 127.0.0.1:1, "
    "retrying in 1.20s. Error details: failed to connect to all addresses; last error: UNKNOWN: "
    "ipv4:127.0.0.1:1: Failed to connect to remote host: Connection refused"
)
_HANDSHAKE_GRPC = (
    "Failed to export traces to 127.0.0.1:1, error code: StatusCode.UNAVAILABLE, error details: "
    "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Tls handshake "
    "failed (TSI_PROTOCOL_FAILURE): "
)
NO_TLS_GRPC = (
    f"{_HANDSHAKE_GRPC}SSL_ERROR_SSL: error:100000f7:SSL routines:OPENSSL_internal:"
    "WRONG_VERSION_NUMBER: Invalid certificate verification context: OK"
)
NO_TRUST_GRPC = (
    f"{_HANDSHAKE_GRPC}SSL_ERROR_SSL: error:1000007d:SSL routines:OPENSSL_internal:"
    "CERTIFICATE_VERIFY_FAILED: self signed certificate: OK"
)
BARE_GRPC = f"{_HANDSHAKE_GRPC}OK"
REJECTED = "Failed to export metrics batch code: 401, reason: Unauthorized"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (REFUSED_HTTP, "Connection refused"),
        (UNKNOWN_HTTP, "Failed to resolve 'a.test' (Name or service not known)"),
        (REFUSED_GRPC, "Connection refused"),
        (NO_TLS_GRPC, "TLS handshake failed: wrong version number"),
        (NO_TRUST_GRPC, "TLS handshake failed: certificate verify failed"),
        (BARE_GRPC, "TLS handshake failed"),
        (REJECTED, REJECTED),
        ("", ""),
    ],
    ids=[
        "refused-http",
        "unknown-http",
        "refused-grpc",
        "no-tls",
        "no-trust",
        "no-tls-words",
        "rejected",
        "nothing",
    ],
)
def test_the_cause_is_told_without_what_is_wrapped_around_it(line: str, cause: str) -> None:
    assert cause_in(line) == cause
