"""Which evaluations use the same servers: live runs in, the ones that share out.

What servers did is of all of them together, so whoever reads their figures has to know.
"""

import asyncio
import os
from collections.abc import Callable, Sequence

from nemo_gym.errors import GymError
from nemo_gym.runtime.beside import SERVERS_OF
from nemo_gym.runtime.registry import LiveRun, live_runs

__all__ = ["Sharing", "evaluations_at"]

_LOOK_S = 1.0


def evaluations_at(servers: LiveRun, alive: Sequence[LiveRun]) -> list[LiveRun]:
    """Return the evaluations that use the same servers as a run does, oldest first.

    It is among them where it is an evaluation itself.
    """
    owner = servers.extra.get(SERVERS_OF, servers.run_id)
    found = [
        run
        for run in alive
        if run.kind == "eval run"
        and (run.head_url == servers.head_url or run.extra.get(SERVERS_OF, run.run_id) == owner)
    ]
    return sorted(found, key=lambda run: run.started_at)


class Sharing:
    """Watches for evaluations that use the servers of this process's run, while that goes on.

    One that began and ended between two looks is missed: it took little of the servers.
    """

    def __init__(
        self, look: Callable[[], list[LiveRun]] = live_runs, pid: int | None = None
    ) -> None:
        self._look = look
        self._pid = os.getpid() if pid is None else pid
        self._seen: dict[str, None] = {}

    @property
    def others(self) -> tuple[str, ...]:
        """Return the ids of the others seen so far."""
        return tuple(self._seen)

    async def watch(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_S)

    async def look(self) -> None:
        """Look once."""
        try:
            alive = await asyncio.to_thread(self._look)
        except GymError:
            return
        for mine in [run for run in alive if run.pid == self._pid]:
            others = [run for run in evaluations_at(mine, alive) if run.pid != self._pid]
            self._seen.update(dict.fromkeys(run.run_id for run in others))
