"""Watch the child processes of a run: name the one that dies, or start it again.

A replaced process inherits the sockets of the one before, so calls that come in between wait in
the backlog and nobody has to be told a new address.
"""

import asyncio
from collections.abc import Callable, Sequence

from nemo_gym.errors import ServerDied
from nemo_gym.runtime.processes import ChildProcess

__all__ = ["MAX_RESTARTS", "first_death", "keep_alive"]

MAX_RESTARTS = 3


async def first_death(children: Sequence[ChildProcess]) -> ServerDied:
    """Wait until one of `children` ends by itself; returns which and how."""
    waiting = [asyncio.ensure_future(child.died()) for child in children]
    try:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
    return next(iter(done)).result()


async def keep_alive(children: Sequence[ChildProcess], notify: Callable[[str], None]) -> None:
    """Start a child that dies again, at most `MAX_RESTARTS` times each, then raise its death."""
    await asyncio.gather(*(_keep(child, notify) for child in children))


async def _keep(child: ChildProcess, notify: Callable[[str], None]) -> None:
    for restart in range(MAX_RESTARTS + 1):
        death = await child.died()
        if restart == MAX_RESTARTS:
            raise death
        notify(f"{death}\nstarting it again ({restart + 1} of {MAX_RESTARTS})")
        await child.launch()
        await child.loaded()
        await child.go()
        await child.ready()
