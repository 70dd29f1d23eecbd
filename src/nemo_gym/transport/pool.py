"""The connections of one event loop to one server: kept, handed out, bounded, let go.

The one used last is used next, so that those too many grow old and are closed.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nemo_gym.errors import ConnectFailed
from nemo_gym.transport.connection import Connection

__all__ = ["Limits", "Pool"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a transport allows itself. Times in seconds."""

    connect_s: float = 10.0
    """Until the connection stands, TLS and a proxy's answer included."""
    idle_s: float | None = 600.0
    """Longest silence of the other side within a call. None: any silence is borne."""
    keep_alive_s: float = 15.0
    """An unused connection is closed after this."""
    max_connections: int = 4096
    """Calls beyond wait for a connection."""
    max_unused: int = 1024


Dial = Callable[[], Awaitable[Connection]]
"""Opens a connection, or raises a `TransportError`."""


class Pool:
    """Connections to one server. Belongs to the loop that it was made on."""

    def __init__(self, limits: Limits, dial: Dial) -> None:
        self._limits = limits
        self._dial = dial
        self._loop = asyncio.get_running_loop()
        self._unused: dict[Connection, None] = {}
        self._open = 0
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        self._sweeper: asyncio.TimerHandle | None = None
        self._closing = False

    def take_unused(self) -> Connection | None:
        """Return a connection that has carried a call and is at hand; None: there is none."""
        oldest = self._loop.time() - self._limits.keep_alive_s
        while self._unused:
            connection, _ = self._unused.popitem()
            if connection.idle_since >= oldest and not connection.closed:
                return connection
            connection.close()
        return None

    async def take(self, *, fresh: bool = False) -> tuple[Connection, bool]:
        """Return a connection and whether it has carried a call before.

        `fresh`: a new one, whatever is at hand.
        """
        while True:
            if not fresh and (kept := self.take_unused()) is not None:
                return kept, True
            if self._open < self._limits.max_connections:
                return await self._connect(), False
            if fresh and self._unused:
                self._drop(next(iter(self._unused)))
                continue
            if (handed := await self._wait()) is not None:
                return handed, True

    def aclose(self) -> None:
        """Close what is unused now, and what is in use as soon as its call ends."""
        self._closing = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in tuple(self._unused):
            self._drop(connection)

    async def _connect(self) -> Connection:
        self._open += 1
        try:
            connection = await self._dial()
        except BaseException:
            self._gone()
            raise
        connection.released = self._released
        if connection.closed:
            self._gone()
            raise ConnectFailed("the connection closed as soon as it stood")
        return connection

    async def _wait(self) -> Connection | None:
        """Return a connection handed over by a call that ended, None when there is room now."""
        turn: asyncio.Future[Connection | None] = self._loop.create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_on(turn.result())
            raise

    def _released(self, connection: Connection, reusable: bool) -> None:
        """Take note that a call on `connection` ended, or that `connection` closed."""
        if not reusable:
            self._unused.pop(connection, None)
            self._gone()
        elif self._closing:
            connection.close()
        else:
            self._pass_on(connection)

    def _gone(self) -> None:
        self._open -= 1
        self._hand(None)

    def _pass_on(self, connection: Connection | None) -> None:
        if self._hand(connection) or connection is None:
            return
        if len(self._unused) >= self._limits.max_unused:
            connection.close()
            return
        self._unused[connection] = None
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._limits.keep_alive_s, self._sweep)

    def _hand(self, connection: Connection | None) -> bool:
        """Give `connection`, or the room for one, to who has waited longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return True
        return False

    def _sweep(self) -> None:
        self._sweeper = None
        oldest = self._loop.time() - self._limits.keep_alive_s
        for connection in tuple(self._unused):
            if connection.idle_since > oldest:
                wait = connection.idle_since - oldest
                self._sweeper = self._loop.call_later(wait + 0.01, self._sweep)
                return
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._unused.pop(connection, None)
        connection.close()
