"""Who watches the servers of a run, and what is done when one dies."""

import asyncio
import json
from typing import Any, cast

import pytest
from starlette.types import Receive, Scope, Send

from nemo_gym.errors import ServerDied
from nemo_gym.runtime.processes import ChildProcess
from nemo_gym.runtime.session import RunningServers
from nemo_gym.runtime.supervise import MAX_RESTARTS, keep_alive, until_dead, until_gone
from nemo_gym.servers.raw import send_json
from nemo_gym.servers.serve import AppServer, bind_socket


class _Child:
    """Dies as often as told, then lives on; `dies_on_the_way` dies before it is ready, too."""

    def __init__(self, deaths: int, *, dies_on_the_way: bool = False) -> None:
        self.deaths = deaths
        self.dies_on_the_way = dies_on_the_way
        self.launches = 0

    async def died(self) -> ServerDied:
        if not self.deaths:
            await asyncio.get_running_loop().create_future()
        self.deaths -= 1
        await asyncio.sleep(0)
        return ServerDied("child", "ended by itself")

    async def launch(self) -> None:
        self.launches += 1

    async def loaded(self) -> None:
        if self.dies_on_the_way:
            raise ServerDied("child", "ended while it loaded")

    async def go(self) -> None:
        return

    async def ready(self) -> list[str]:
        return []


def _children(*children: _Child) -> list[ChildProcess]:
    return cast("list[ChildProcess]", list(children))


@pytest.mark.parametrize("on_the_way", [False, True], ids=["while-it-serves", "while-it-starts"])
async def test_a_child_is_started_again_so_often_wherever_it_dies(on_the_way: bool) -> None:
    child, told = _Child(MAX_RESTARTS + 1, dies_on_the_way=on_the_way), list[str]()

    with pytest.raises(ServerDied, match="ended by itself"):
        await keep_alive(_children(child), told.append)

    assert child.launches == MAX_RESTARTS
    assert "starting it again (3 of 3)" in told[-1]


async def test_no_child_is_started_again_once_one_is_dead_for_good() -> None:
    lost, other = _Child(MAX_RESTARTS + 1), _Child(0)
    with pytest.raises(ServerDied):
        await keep_alive(_children(lost, other), lambda _: None)

    other.deaths = 1  # as when the run now stops it
    for _ in range(10):
        await asyncio.sleep(0)

    assert other.launches == 0


async def test_the_death_of_a_child_for_good_is_returned() -> None:
    running = _running("http://127.0.0.1:1", children=_children(_Child(MAX_RESTARTS + 1)))
    running.log_dir = cast("Any", "somewhere")

    assert "ended by itself" in str(await until_dead(running, lambda _: None))


def _running(url: str, children: list[ChildProcess] | None = None) -> RunningServers:
    client = cast("Any", None)
    return RunningServers("run-1", client, {}, (), url, log_dir=None, children=children or [])


async def test_servers_that_nobody_listens_for_any_more_are_gone_in_seconds() -> None:
    sock = bind_socket("127.0.0.1", 0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    sock.close()

    gone = await asyncio.wait_for(until_gone(_running(url)), 15)

    assert url in str(gone)
    assert "gym env start" in str(gone)
    assert "--resume" in str(gone)


async def test_another_run_at_the_same_address_is_not_taken_for_the_one_that_ended() -> None:
    async def head(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send_json(send, 200, json.dumps({"run_id": "run-2"}).encode())

    sock = bind_socket("127.0.0.1", 0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    server = AppServer(head, sock, "head")
    await server.start()
    try:
        gone = await asyncio.wait_for(until_dead(_running(url), lambda _: None), 10)
    finally:
        await server.stop(0.1)

    assert "another run listens there" in str(gone)
