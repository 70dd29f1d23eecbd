"""Where every server of a run is, and which of its instances a call goes to.

Same cell first: a session stays where it began without leaving the process. Else the rollout
decides (rendezvous hashing), so that every caller picks the same instance and few rollouts move
when one is added. A call that belongs to no rollout goes where the least is under way.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from starlette.types import ASGIApp

from nemo_gym.errors import ConnectFailed
from nemo_gym.ids import RolloutId
from nemo_gym.transport.base import Transport
from nemo_gym.transport.http import HttpTransport, Limits, Proxies
from nemo_gym.transport.in_process import InProcessTransport

__all__ = ["Directory", "Instance", "Spread", "rendezvous"]

Spread = Literal["rollout", "load"]
"""`rollout`: as above. `load`: the instance with the fewest calls under way, whichever it is."""

# A rollout may be silent for as long as it takes; whoever calls sets the limit.
_BETWEEN_SERVERS = Limits(idle_s=None)


@dataclass(slots=True, eq=False)
class Instance:
    """One running copy of a server."""

    name: str
    transport: Transport
    origin: str | None = None
    """`http://host:port`; None for an app of this process."""
    in_flight: int = 0
    """Calls from this process that are under way."""


class Directory:
    """The address book of one process."""

    def __init__(self) -> None:
        self._local: dict[str, Instance] = {}
        self._remote: dict[str, dict[str, Instance]] = {}

    def register_local(
        self, name: str, app: ASGIApp, state: Mapping[str, Any] | None = None
    ) -> None:
        """Let calls to `name` run in this process; `state` is that of the app's lifespan."""
        self._local[name] = Instance(name, InProcessTransport(app, name, state=state))

    def set_addresses(self, name: str, origins: Sequence[str]) -> None:
        """Let `name` be reached at `origins`; connections to those it had before are kept."""
        known = self._remote.get(name, {})
        self._remote[name] = {
            origin: known.get(origin) or Instance(name, _within_the_run(origin), origin)
            for origin in origins
        }

    def names(self) -> list[str]:
        """Return every server that can be called."""
        return sorted({*self._local, *(name for name, at in self._remote.items() if at)})

    def instances(self, name: str) -> list[Instance]:
        """Return the instances of `name`, one of this process first."""
        local = self._local.get(name)
        return ([local] if local else []) + list(self._remote.get(name, {}).values())

    def pick(
        self, name: str, rollout_id: RolloutId | None = None, spread: Spread = "rollout"
    ) -> Instance:
        """Return the instance that a call of `rollout_id` goes to.

        Raises `ConnectFailed` when no server of that name is known.
        """
        if spread == "rollout" and name in self._local:
            return self._local[name]
        instances = self.instances(name)
        if not instances:
            known = ", ".join(self.names()) or "none"
            raise ConnectFailed(f"no server named {name!r} in this run (there are: {known})")
        if spread == "rollout" and rollout_id is not None and len(instances) > 1:
            by_origin = {instance.origin or "": instance for instance in instances}
            return by_origin[rendezvous(rollout_id, list(by_origin))]
        return min(instances, key=lambda instance: instance.in_flight)

    async def aclose(self) -> None:
        """Close every connection and end every call of this process."""
        for name in self.names():
            for instance in self.instances(name):
                await instance.transport.aclose()


def _within_the_run(origin: str) -> HttpTransport:
    # Servers of a run reach each other directly, whatever proxy the environment names.
    return HttpTransport(origin, limits=_BETWEEN_SERVERS, proxies=Proxies())


def rendezvous(key: str, places: Sequence[str]) -> str:
    """Return the one of `places` that `key` belongs to, the same for whoever asks, in any order."""
    return max(places, key=lambda place: hashlib.blake2b(f"{key}\0{place}".encode()).digest())
