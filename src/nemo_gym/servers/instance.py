"""What every server has: the settings of its instance, and the classes that servers derive from."""

from abc import abstractmethod
from typing import Any, ClassVar

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, SkipValidation

from nemo_gym.records.refs import ServerKind
from nemo_gym.transport.server_client import ServerClient

__all__ = ["BaseRunServerInstanceConfig", "BaseServer", "BaseServerConfig", "SimpleServer"]


class BaseServerConfig(BaseModel):
    """Where a server listens."""

    host: str | None = None
    """Interface to bind. None: loopback."""
    port: int | None = None
    """Port to bind. None: any free one."""


class BaseRunServerInstanceConfig(BaseServerConfig):
    """Settings under `NAME: {KIND: {IMPLEMENTATION: …}}`; components add fields of their own."""

    name: str = ""
    """Instance name: the top-level key of the configuration."""
    entrypoint: str = "app.py"
    """File of the component's folder that defines the server class."""


class BaseServer(BaseModel):
    """A server of a run: its settings and the state it keeps in fields of its own."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    KIND: ClassVar[ServerKind | None] = None

    config: BaseRunServerInstanceConfig


class SimpleServer(BaseServer):
    """A server that calls others through `server_client` and is served as a FastAPI app."""

    server_client: SkipValidation[ServerClient]

    @abstractmethod
    def setup_webserver(self) -> FastAPI:
        """Return the app of this server; subclasses call `super()` and add routes."""

    @classmethod
    def run_webserver(cls) -> None:
        """Serve this class by hand: `python app.py` in a folder with the run's configuration."""
        # Only here: importing a component must not load the configuration machinery.
        from nemo_gym.servers.by_hand import run_by_hand  # noqa: PLC0415

        run_by_hand(cls)

    def _setting(self, key: str) -> Any:
        """Return a top-level setting of the run; None where there is none."""
        return self.server_client.global_config_dict.get(key)
