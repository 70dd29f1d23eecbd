"""Front door: what an agent server is written against."""

from fastapi import Body

from nemo_gym.servers.agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.servers.instance import BaseRunServerInstanceConfig
from nemo_gym.servers.run_types import AggregateMetrics, AggregateMetricsRequest

__all__ = [
    "AggregateMetrics",
    "AggregateMetricsRequest",
    "BaseResponsesAPIAgentConfig",
    "BaseRunServerInstanceConfig",
    "Body",
    "SimpleResponsesAPIAgent",
]
