"""A cell: one process, one event loop, one instance of every server it is given.

Comes in: a `RunConfig`, the servers to host, a bound socket for each, and where the other servers
of the run are. Goes out: running ASGI apps that call each other without a socket.
"""

import asyncio
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp

from nemo_gym.config.resolved import RunConfig, ServerInstance
from nemo_gym.errors import UserMistake
from nemo_gym.runtime.logs import name_requests, server_named
from nemo_gym.servers.instance import BaseServer
from nemo_gym.servers.load import build_server
from nemo_gym.servers.serve import AppServer
from nemo_gym.transport.directory import Directory
from nemo_gym.transport.server_client import ServerClient

__all__ = ["Cell"]


@dataclass(slots=True)
class _Hosted:
    instance: ServerInstance
    server: BaseServer
    app: ASGIApp
    running: AppServer | None = None


class Cell:
    """The servers hosted in this process. `load`, then `start`, then `stop`."""

    def __init__(self, config: RunConfig, addresses: Mapping[str, Sequence[str]]) -> None:
        self.directory = Directory()
        for name, origins in addresses.items():
            self.directory.set_addresses(name, list(origins))
        self.client = ServerClient(self.directory, config.tree)
        self._config = config
        self._hosted: list[_Hosted] = []

    def load(self, servers: Iterable[ServerInstance]) -> None:
        """Import, validate and build every server; raises `UserMistake` before anything starts."""
        for instance in servers:
            with server_named(instance.name):
                server, app = build_server(instance, self._config, self.client)
            named = name_requests(app, instance.name)
            self._hosted.append(_Hosted(instance, server, named))
            self.directory.register_local(instance.name, named)

    async def start(self, sockets: Mapping[str, socket.socket]) -> None:
        """Run every lifespan and accept on every socket; `sockets` is by server name."""
        starting: list[asyncio.Task[None]] = []
        for hosted in self._hosted:
            name = hosted.instance.name
            hosted.running = AppServer(hosted.app, sockets[name], name)
            with server_named(name):
                starting.append(asyncio.create_task(hosted.running.start()))
        try:
            await asyncio.gather(*starting)
        except BaseException:
            await asyncio.gather(*starting, return_exceptions=True)
            raise
        for hosted in self._hosted:
            if hosted.running is not None and hosted.running.state:
                name, state = hosted.instance.name, hosted.running.state
                self.directory.register_local(name, hosted.app, state)

    async def provider_problems(self) -> list[UserMistake]:
        """Return what is wrong with the provider of each model server that cannot use it.

        A component may say it as a `UserMistake` or in one line.
        """
        asking = [
            hosted.server.provider_problem()
            for hosted in self._hosted
            if hasattr(hosted.server, "provider_problem")
        ]
        found = [each for each in await asyncio.gather(*asking) if each]
        return [each if isinstance(each, UserMistake) else _problem(str(each)) for each in found]

    async def stop(self, grace_s: float = 1.0) -> None:
        """Stop every server; what still streams after `grace_s` is cut off."""
        running = [h.running for h in self._hosted if h.running is not None]
        await asyncio.gather(*(r.stop(grace_s) for r in running), return_exceptions=True)
        await self.client.aclose()


def _problem(line: str) -> UserMistake:
    return UserMistake(
        line, mend="mend the settings of its model server, or start what it stands before"
    )
