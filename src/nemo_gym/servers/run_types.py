"""Bodies of `/run`, `/seed_session`, `/verify` and `/aggregate_metrics`.

Unknown keys are carried through untouched: a task row may hold anything its environment wants.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.servers.openai_responses import (
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)

__all__ = [
    "AggregateMetrics",
    "AggregateMetricsRequest",
    "BaseMultiRewardVerifyResponse",
    "BaseRunRequest",
    "BaseSeedSessionRequest",
    "BaseSeedSessionResponse",
    "BaseVerifyRequest",
    "BaseVerifyResponse",
]


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class BaseRunRequest(_Open):
    """A task row: what to ask the model, and whatever else the environment wants."""

    responses_create_params: NeMoGymResponseCreateParamsNonStreaming


class BaseVerifyRequest(BaseRunRequest):
    """The task row plus what the agent made of it."""

    response: NeMoGymResponse


class BaseVerifyResponse(BaseVerifyRequest):
    """The verify request plus the reward; numeric fields that users add become metrics."""

    reward: float


class BaseMultiRewardVerifyResponse(BaseVerifyResponse):
    """A reward that was put together from named parts."""

    reward_components: dict[str, float] = Field(default_factory=dict)


class BaseSeedSessionRequest(_Open):
    """The task row, for a server that prepares the state of one rollout."""


class BaseSeedSessionResponse(_Open):
    """What the agent needs to know of the prepared state; nothing as a rule."""


class AggregateMetricsRequest(BaseModel):
    """Verify responses of one agent, without their evidence attachments."""

    verify_responses: list[dict[str, Any]]


class AggregateMetrics(BaseModel):
    """Metrics of one agent over a run."""

    group_level_metrics: list[dict[str, Any]] = Field(default_factory=list)
    """One entry a task, in order of first appearance."""
    agent_metrics: dict[str, Any] = Field(default_factory=dict)
    """Metrics over all tasks, with their intervals."""
    key_metrics: dict[str, Any] = Field(default_factory=dict)
    """The few of them that belong in a table."""
