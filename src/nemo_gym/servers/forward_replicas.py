"""Replicas of one provider: which is asked first, and what each has under way."""

from collections.abc import Sequence

from nemo_gym.ids import RolloutId
from nemo_gym.servers.forward_headers import HeaderRule
from nemo_gym.servers.provider import Provider
from nemo_gym.transport.address import Address
from nemo_gym.transport.base import Call, Reply, Transport
from nemo_gym.transport.directory import rendezvous
from nemo_gym.wire.dialects import DIALECTS

__all__ = ["Replica", "in_turn"]


class Replica:
    """One address of a provider. A transport that counts the calls whose head is awaited."""

    __slots__ = ("_targets", "address", "in_flight", "rule", "transport")

    def __init__(self, provider: Provider, address: Address, transport: Transport) -> None:
        self.address = address
        self.rule = HeaderRule(provider, address)
        self.transport = transport
        self.in_flight = 0
        routes = [dialect.route for dialect in DIALECTS]
        self._targets = {route: address.target(route.decode()) for route in routes}

    def target(self, path: bytes, query: bytes) -> str:
        """Return what to ask for at this address, for a client that asked for path and query."""
        found = None if query else self._targets.get(path)
        if found is not None:
            return found
        route = path.decode("latin-1")
        return self.address.target(f"{route}?{query.decode('latin-1')}" if query else route)

    async def send(self, call: Call) -> Reply:
        """Send `call`; return its reply once the head has come."""
        self.in_flight += 1
        try:
            return await self.transport.send(call)
        finally:
            self.in_flight -= 1

    async def aclose(self) -> None:
        """Close what is pooled."""
        await self.transport.aclose()


def in_turn(replicas: Sequence[Replica], rollout_id: RolloutId | None) -> Sequence[Replica]:
    """Return the replicas in the order in which a call tries them.

    The calls of a rollout begin at the same one, whose prefix cache knows the conversation; others
    begin where the least is under way.
    """
    if len(replicas) == 1:
        return replicas
    by_url = {f"{r.address.origin}{r.address.path}": r for r in replicas}
    if rollout_id is not None:
        first = by_url[rendezvous(rollout_id, list(by_url))]
    else:
        first = min(replicas, key=lambda replica: replica.in_flight)
    start = replicas.index(first)
    return [*replicas[start:], *replicas[:start]]
