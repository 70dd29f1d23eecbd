"""Replicas of one provider: which is asked first, and what each has under way."""

from collections.abc import Sequence

from nemo_gym.ids import RolloutId
from nemo_gym.transport.address import Address
from nemo_gym.transport.base import Call, Reply, Transport
from nemo_gym.transport.directory import rendezvous

__all__ = ["Replica", "in_turn"]


class Replica:
    """One address of a provider. A transport that counts the calls whose head is awaited."""

    __slots__ = ("address", "in_flight", "transport")

    def __init__(self, address: Address, transport: Transport) -> None:
        self.address = address
        self.transport = transport
        self.in_flight = 0

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
