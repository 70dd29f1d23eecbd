"""What every server has: the settings of its instance, and the classes that servers derive from."""

from abc import abstractmethod
from typing import ClassVar

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field, SkipValidation

from nemo_gym.records.refs import ServerKind
from nemo_gym.transport.server_client import ServerClient

__all__ = ["BaseRunServerInstanceConfig", "BaseServer", "BaseServerConfig"]


class BaseServerConfig(BaseModel):
    """Where a server listens."""

    host: str | None = None
    """Interface to bind. None: loopback."""
    port: int | None = Field(default=None, ge=0, le=65535)
    """Port to bind. None: any free one."""


class BaseRunServerInstanceConfig(BaseServerConfig):
    """Settings under `NAME: {KIND: {IMPLEMENTATION: …}}`; components add fields of their own."""

    name: str = ""
    """Instance name: the top-level key of the configuration."""
    entrypoint: str = "app.py"
    """File of the component's folder that defines the server class."""


class BaseServer(BaseModel):
    """A server of a run: its settings, and the state it keeps in fields of its own."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    KIND: ClassVar[ServerKind | None] = None

    config: BaseRunServerInstanceConfig
    server_client: SkipValidation[ServerClient]
    """Calls the other servers of the run by name."""

    @abstractmethod
    def setup_webserver(self) -> FastAPI:
        """Return the app of this server; subclasses call `super()` and add routes."""
