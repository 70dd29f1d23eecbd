"""Front door: references between servers, and the types of aggregate metrics."""

from nemo_gym.ids import ROLLOUT_PATH_PREFIX
from nemo_gym.records.refs import AgentServerRef, ModelServerRef, ResourcesServerRef
from nemo_gym.servers.run_types import AggregateMetrics, AggregateMetricsRequest

__all__ = [
    "ROLLOUT_PATH_PREFIX",
    "AgentServerRef",
    "AggregateMetrics",
    "AggregateMetricsRequest",
    "ModelServerRef",
    "ResourcesServerRef",
]
