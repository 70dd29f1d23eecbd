"""Servers of a run put together in this process, as a cell does it: no sockets, no processes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from nemo_gym.config.components import builtin_root
from nemo_gym.config.resolved import RunConfig, ServerInstance
from nemo_gym.servers.instance import BaseServer
from nemo_gym.servers.load import build_server
from nemo_gym.transport.directory import Directory
from nemo_gym.transport.server_client import ServerClient

__all__ = ["COMPONENTS", "InCell", "instance_of"]

COMPONENTS = Path(__file__).parents[1] / "fixtures" / "components"
"""A search directory with components as a stranger would write them."""


class InCell:
    """The servers of `tree` by name, and a client that reaches them and knows `settings` too."""

    def __init__(
        self, tree: Mapping[str, Any], *, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.tree = tree
        self.servers: dict[str, BaseServer] = {}
        self.apps: dict[str, ASGIApp] = {}
        self.directory = Directory()
        self.client = ServerClient(self.directory, {**tree, **(settings or {})})
        for name in [name for name, entry in tree.items() if isinstance(entry, Mapping)]:
            instance = instance_of(name, tree)
            server, app = build_server(instance, RunConfig(tree, (), {}), self.client)
            self.servers[name] = server
            self.add_app(name, app)

    def add_app(self, name: str, app: ASGIApp) -> None:
        """Put an app in the place of the server `name`."""
        self.apps[name] = app
        self.directory.register_local(name, app)

    async def aclose(self) -> None:
        """End what still runs."""
        await self.client.aclose()


def instance_of(name: str, tree: Mapping[str, Any]) -> ServerInstance:
    """Return the instance that `NAME: {KIND: {IMPLEMENTATION: settings}}` defines."""
    ((kind, implementations),) = tree[name].items()
    ((implementation, settings),) = implementations.items()
    folders = [root / kind / implementation for root in (COMPONENTS, builtin_root())]
    folder = next(folder for folder in folders if folder.is_dir())
    return ServerInstance(name, kind, implementation, folder, settings)
