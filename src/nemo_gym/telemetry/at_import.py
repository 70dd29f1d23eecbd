"""Load OpenTelemetry's API so that no standard variable ends the process, telemetry on or off.

FastAPI loads it, too, and it fails there over a propagator that is not installed. Called as
`nemo_gym` is imported, and only where one of its variables is set.
"""

import importlib
import os
import sys

from nemo_gym.telemetry.variables import Unread, unread, without

__all__ = ["TAKEN", "load_api"]

TAKEN: list[Unread] = []
"""What was taken out of the environment for good."""

_AT_IMPORT = ("OTEL_PROPAGATORS", "OTEL_PYTHON_CONTEXT")
_EVER_AGAIN = (
    *("OTEL_PYTHON_TRACER_PROVIDER", "OTEL_PYTHON_METER_PROVIDER"),
    "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED",
)


def load_api() -> None:
    """Load the API without what cannot be read, where there is such a thing."""
    for name in _EVER_AGAIN:
        if (each := unread(name)) is not None:
            # Read at each request, through FastAPI, or with each tracer: it has to go for good.
            del os.environ[name]
            TAKEN.append(each)
    found = [each for name in _AT_IMPORT if (each := unread(name)) is not None]
    if found and "opentelemetry.propagate" not in sys.modules:
        with without(found):
            importlib.import_module("opentelemetry.propagate")
