"""References from one server's configuration to another server, by kind and instance name."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

__all__ = ["AgentServerRef", "ModelServerRef", "ResourcesServerRef", "ServerKind"]

ServerKind = Literal["resources_servers", "responses_api_agents", "responses_api_models"]


class _ServerRef(BaseModel):
    # Each reference declares both fields itself: `type` comes first in what is dumped.
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelServerRef(_ServerRef):
    """A model server of the run."""

    type: Literal["responses_api_models"] = "responses_api_models"
    name: str
    """Instance name: the top-level key of the configuration that defines the server."""


class ResourcesServerRef(_ServerRef):
    """A resources server of the run."""

    type: Literal["resources_servers"] = "resources_servers"
    name: str
    """Instance name, as of a model server."""


class AgentServerRef(_ServerRef):
    """An agent server of the run."""

    type: Literal["responses_api_agents"] = "responses_api_agents"
    name: str
    """Instance name, as of a model server."""
