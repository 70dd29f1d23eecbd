"""Watch the servers of a run: name what dies, or start it again.

A replaced process inherits the sockets of the one before, so calls that come in between wait in
the backlog and nobody has to be told a new address.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from nemo_gym.errors import ConnectFailed, ConnectionLost, ServerDied, TransportError
from nemo_gym.runtime.connect import read_head
from nemo_gym.runtime.processes import ChildProcess
from nemo_gym.runtime.session import RunningServers

__all__ = ["MAX_RESTARTS", "first_death", "keep_alive", "until_dead", "until_gone"]

MAX_RESTARTS = 3
_LOOK_EVERY_S = 1.0
_PATIENCE_S = 4.0
"""How long nothing may listen at the head server's address, in seconds, before it is gone."""


async def until_dead(running: RunningServers, notify: Callable[[str], None]) -> ServerDied:
    """Return once the servers of `running` are dead for good; those started here are restarted."""
    if running.log_dir is None:
        return await until_gone(running)
    try:
        await keep_alive(running.children, notify)
    except ServerDied as death:
        return death
    never: asyncio.Future[ServerDied] = asyncio.get_running_loop().create_future()
    return await never  # a cell of this process dies with it


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
    keeping = [asyncio.ensure_future(_keep(child, notify)) for child in children]
    try:
        await asyncio.gather(*keeping)
    finally:
        # Whoever stops the children now must not have them started again.
        for task in keeping:
            task.cancel()
        await asyncio.gather(*keeping, return_exceptions=True)


async def _keep(child: ChildProcess, notify: Callable[[str], None]) -> None:
    for restart in range(MAX_RESTARTS):
        death = await child.died()
        notify(f"{death}\nstarting it again ({restart + 1} of {MAX_RESTARTS})")
        await _start_again(child)
    raise await child.died()


async def _start_again(child: ChildProcess) -> None:
    """Bring a child up; one that dies on the way is seen by whoever watches it next."""
    await child.launch()
    try:
        await child.loaded()
        await child.go()
        await child.ready()
    except ServerDied:
        return


async def until_gone(running: RunningServers) -> ServerDied:
    """Return once nothing has listened for a while at the head server of a run started apart.

    One that is slow, or behind a network that stutters, is not gone.
    """
    heard = time.monotonic()
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        try:
            book = await read_head(running.head_url, "/servers")
        except (ConnectFailed, ConnectionLost):
            if time.monotonic() - heard > _PATIENCE_S:
                return _gone(running, "nothing listens there any more")
            continue
        except TransportError:
            book = {"run_id": running.run_id}
        if book.get("run_id") != running.run_id:
            return _gone(running, "another run listens there now")
        heard = time.monotonic()


def _gone(running: RunningServers, how: str) -> ServerDied:
    reason = (
        f"the servers have ended: {how}; start them again with 'gym env start', then go on with "
        "--resume"
    )
    return ServerDied(running.head_url, reason)
