"""References from one server's configuration to another server, by kind and instance name."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

__all__ = ["AgentServerRef", "ModelServerRef", "ResourcesServerRef", "ServerKind"]

ServerKind = Literal["resources_servers", "responses_api_agents", "responses_api_models"]


class _ServerRef(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    """Instance name: the top-level key of the configuration that defines the server."""


class ModelServerRef(_ServerRef):
    """A model server of the run."""

    type: Literal["responses_api_models"] = "responses_api_models"


class ResourcesServerRef(_ServerRef):
    """A resources server of the run."""

    type: Literal["resources_servers"] = "resources_servers"


class AgentServerRef(_ServerRef):
    """An agent server of the run."""

    type: Literal["responses_api_agents"] = "responses_api_agents"
