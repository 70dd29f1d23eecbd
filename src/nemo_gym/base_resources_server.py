"""Front door: what a resources server is written against."""

from fastapi import Body

from nemo_gym.servers.instance import BaseRunServerInstanceConfig
from nemo_gym.servers.resources import (
    BaseResourcesServerConfig,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.servers.run_types import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseMultiRewardVerifyResponse,
    BaseRunRequest,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
)

__all__ = [
    "AggregateMetrics",
    "AggregateMetricsRequest",
    "BaseMultiRewardVerifyResponse",
    "BaseResourcesServerConfig",
    "BaseRunRequest",
    "BaseRunServerInstanceConfig",
    "BaseSeedSessionRequest",
    "BaseSeedSessionResponse",
    "BaseVerifyRequest",
    "BaseVerifyResponse",
    "Body",
    "ReverifyMode",
    "SimpleResourcesServer",
]
