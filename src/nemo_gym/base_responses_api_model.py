"""Front door: what a model server is written against, and how its captured calls are read."""

from fastapi import Body

from nemo_gym.capture.store import CaptureStore
from nemo_gym.observability.model_calls import (
    aggregate_model_call_metrics,
    read_model_call_records,
)
from nemo_gym.servers.instance import BaseRunServerInstanceConfig
from nemo_gym.servers.model import BaseResponsesAPIModelConfig, SimpleResponsesAPIModel

__all__ = [
    "BaseResponsesAPIModelConfig",
    "BaseRunServerInstanceConfig",
    "Body",
    "CaptureStore",
    "SimpleResponsesAPIModel",
    "aggregate_model_call_metrics",
    "read_model_call_records",
]
