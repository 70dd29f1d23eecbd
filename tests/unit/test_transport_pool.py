"""Who gets a connection, when there are fewer than calls."""

import asyncio

from nemo_gym.errors import ConnectFailed
from nemo_gym.transport.connection import Connection
from nemo_gym.transport.pool import Limits, Pool


class Dial:
    """Opens connections that lead nowhere; fails as often as `failures` says."""

    def __init__(self, failures: int = 0) -> None:
        self.made: list[Connection] = []
        self.failures = failures

    async def __call__(self) -> Connection:
        if self.failures:
            self.failures -= 1
            raise ConnectFailed("refused")
        connection = Connection(f"number {len(self.made)}")
        self.made.append(connection)
        return connection


async def test_the_connection_used_last_is_used_next() -> None:
    dial = Dial()
    pool = Pool(Limits(), dial)
    taken = [(await pool.take())[0] for _ in range(3)]
    for connection in taken:
        connection.idle_since = asyncio.get_running_loop().time()
        connection.released(connection, True)

    assert await pool.take() == (taken[2], True)
    assert await pool.take() == (taken[1], True)
    pool.aclose()


async def test_a_connection_handed_to_a_caller_who_left_goes_to_the_next() -> None:
    pool = Pool(Limits(max_connections=1), Dial())
    connection, _ = await pool.take()
    leaving, staying = (asyncio.create_task(pool.take()) for _ in range(2))
    await asyncio.sleep(0)

    connection.released(connection, True)
    leaving.cancel()  # in the same turn of the loop: the connection is its own already

    assert await asyncio.wait_for(staying, 1) == (connection, True)
    assert (await asyncio.gather(leaving, return_exceptions=True))[0].__class__.__name__ == (
        "CancelledError"
    )


async def test_a_connection_that_cannot_be_made_leaves_its_place_to_the_next() -> None:
    dial = Dial(failures=1)
    pool = Pool(Limits(max_connections=1), dial)

    first, second = await asyncio.gather(pool.take(), pool.take(), return_exceptions=True)

    assert isinstance(first, ConnectFailed)
    assert second == (dial.made[0], False)


async def test_a_connection_that_closes_leaves_its_place_to_the_next() -> None:
    dial = Dial()
    pool = Pool(Limits(max_connections=1), dial)
    connection, _ = await pool.take()
    waiting = asyncio.create_task(pool.take())
    await asyncio.sleep(0)
    connection.released(connection, False)

    assert await asyncio.wait_for(waiting, 1) == (dial.made[1], False)


async def test_a_fresh_connection_is_had_even_when_all_places_are_taken_by_unused_ones() -> None:
    dial = Dial()
    pool = Pool(Limits(max_connections=1), dial)
    old, _ = await pool.take()
    old.idle_since = asyncio.get_running_loop().time()
    old.released(old, True)
    taking = asyncio.create_task(pool.take(fresh=True))
    await asyncio.sleep(0)
    old.released(old, False)  # as it does when it has closed

    assert await asyncio.wait_for(taking, 1) == (dial.made[1], False)


class Noting(Connection):
    """Notes that it was closed."""

    let_go = False

    def close(self) -> None:
        self.let_go = True


async def test_a_connection_kept_too_long_is_closed_and_not_used() -> None:
    kept = [Noting("fresh"), Noting("stale")]
    waiting = iter(kept)

    async def dial() -> Connection:
        return next(waiting)

    pool = Pool(Limits(keep_alive_s=10), dial)
    for age_s in (9.0, 10.1):
        connection, _ = await pool.take(fresh=True)
        connection.idle_since = asyncio.get_running_loop().time() - age_s
    for connection in kept:
        connection.released(connection, True)

    assert pool.take_unused() is kept[0]
    assert [one.let_go for one in kept] == [False, True]
    assert pool.take_unused() is None
    pool.aclose()
