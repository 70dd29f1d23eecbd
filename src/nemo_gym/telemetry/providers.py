"""Turn telemetry on in this process: `start_telemetry` in, a handle to end it out.

Nothing of the OpenTelemetry SDK is imported unless something is to be exported. What goes where is
said in `settings`; metrics are read by threads of their own, and by an event loop only as it ends.
"""

import logging
import os
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from nemo_gym.errors import UserMistake
from nemo_gym.telemetry.exporting import exporting, set_exporting
from nemo_gym.telemetry.settings import TelemetryOptions, telemetry_options
from nemo_gym.telemetry.tracing import set_tracer, tracer
from nemo_gym.telemetry.unread import of_sdk
from nemo_gym.telemetry.variables import without

__all__ = ["SHUTDOWN_BUDGET_S", "TelemetryHandle", "start_telemetry"]

_logger = logging.getLogger(__name__)

SHUTDOWN_BUDGET_S = 1.0
"""How long `shutdown` may take, metrics and traces together, whatever a collector does.

With `export.FLUSH_S` before it, the end of a process stays below two seconds, and a server's below
the time after which its parent kills it.
"""

_INSTALL = (
    "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http "
    "opentelemetry-exporter-otlp-proto-grpc psutil   (the extra 'otel')"
)


class TelemetryHandle:
    """What exports from this process, until `shutdown`. Also stands for nothing at all."""

    def __init__(
        self,
        *,
        instance_id: str | None = None,
        scrape_url: str | None = None,
        exposition: Callable[[], str] = lambda: "",
        stop: Callable[[float], None] = lambda _budget_s: None,
    ) -> None:
        self.instance_id = instance_id
        """`service.instance.id` of this process, unique; None when nothing exports."""
        self.scrape_url = scrape_url
        """Where this process answers `GET /metrics`; None when it does not."""
        self._exposition = exposition
        self._stop = stop
        self._lock = threading.Lock()
        self._ended = False
        self._pid = os.getpid()

    def exposition(self) -> str:
        """Return this process's metrics as Prometheus text now; empty when it has none."""
        return self._exposition()

    def shutdown(self, budget_s: float = SHUTDOWN_BUDGET_S) -> None:
        """Send what is recorded and stop, within `budget_s` seconds. Never raises; once is enough.

        In a forked child it does nothing: what exports is the parent's.
        """
        with self._lock:
            if self._ended or os.getpid() != self._pid:
                return
            self._ended = True
        try:
            self._stop(budget_s)
        except Exception:  # telemetry never stops a server
            _logger.warning("telemetry did not end as it should", exc_info=True)


def start_telemetry(
    settings: Mapping[str, object],
    *,
    service_name: str,
    instance: str,
    warned: Callable[[str], None] = lambda _line: None,
) -> TelemetryHandle:
    """Export what `settings` (the content of the `telemetry` key) ask for, from this process.

    `service_name` is what the process is (`nemo_gym.cell`, `nemo_gym.driver`), `instance` tells it
    from others for a reader; a unique part is added. `warned` gets one line, on another thread,
    when a collector cannot be reached. Raises `UserMistake` for wrong settings and for missing
    packages. A process exports once at a time: a second start changes nothing.
    """
    options = telemetry_options(settings)
    if not options.on:
        return TelemetryHandle()
    if exporting() is not None or tracer() is not None:
        _logger.debug("telemetry is on already; %s adds nothing", service_name)
        return TelemetryHandle()
    return _started(options, service_name, instance, warned)


def _started(
    options: TelemetryOptions, service_name: str, instance: str, warned: Callable[[str], None]
) -> TelemetryHandle:
    with without(of_sdk()):
        try:
            from nemo_gym.telemetry import export  # noqa: PLC0415 - nothing is paid while off
        except ModuleNotFoundError as error:
            raise UserMistake(
                f"telemetry is on, but the package that provides {error.name!r} is not installed",
                mend=_INSTALL,
            ) from None
        running = export.Running(options, service_name, instance, warned)
    return TelemetryHandle(
        instance_id=running.instance_id,
        scrape_url=running.scrape_url,
        exposition=running.exposition,
        stop=lambda budget_s: _end(running, budget_s),
    )


def _end(running: Any, budget_s: float) -> None:
    deadline = monotonic() + budget_s
    set_tracer(None)
    running.stop(deadline)
    set_exporting(None)
