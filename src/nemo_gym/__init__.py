"""Run LLM agents in environments, collect their rollouts, keep evidence of every model call."""

from os import environ as _environ

__all__ = ["__version__"]

__version__ = "0.1.0"

if _environ.keys() & {
    *("OTEL_PROPAGATORS", "OTEL_PYTHON_CONTEXT"),
    *("OTEL_PYTHON_TRACER_PROVIDER", "OTEL_PYTHON_METER_PROVIDER"),
    "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED",
}:
    # Before anybody imports FastAPI, which ends with a traceback over one that is not installed.
    from nemo_gym.telemetry.at_import import load_api as _load_api

    _load_api()
