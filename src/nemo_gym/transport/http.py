"""Calls over HTTP/1.1: pooled connections, TLS, proxies. Bytes pass through as they come.

Our own client on asyncio and httptools, because the client decides what forwarding a call costs
(docs/decisions/030-own-http-client.md).
"""

import asyncio
import os
import weakref
from time import perf_counter

from nemo_gym.errors import ConnectionLost
from nemo_gym.telemetry import observer
from nemo_gym.telemetry.work import connection_at_hand, connection_waited
from nemo_gym.transport.address import Address, parse_address
from nemo_gym.transport.base import Call
from nemo_gym.transport.connection import Connection
from nemo_gym.transport.dial import Dialler
from nemo_gym.transport.head import request_head
from nemo_gym.transport.pool import Limits, Pool
from nemo_gym.transport.proxies import Proxies
from nemo_gym.transport.reply import HttpReply

__all__ = ["HttpTransport", "Limits", "Proxies"]

# A server that took longer than this to close was at work on the call.
_ON_ITS_WAY_S = 1.0


class HttpTransport:
    """A way to one server over HTTP.

    `origin` is a URL (of which only scheme, host and port matter here) or an `Address`. Raises
    `AddressInvalid` for one that names no server. `proxies` are those of the environment
    where none are given. Each event loop gets connections of its own, and
    a forked child starts without any.
    """

    def __init__(
        self,
        origin: str | Address,
        *,
        limits: Limits | None = None,
        proxies: Proxies | None = None,
    ) -> None:
        self.address = parse_address(origin) if isinstance(origin, str) else origin
        self._limits = limits or Limits()
        self._proxy = (proxies or Proxies.of_environment(os.environ)).for_address(self.address)
        self._host = self.address.host_header.encode("ascii")
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Pool]
        self._pools = weakref.WeakKeyDictionary()
        plain = self._proxy if self.address.scheme == "http" else None
        self._absolute = self.address.origin if plain else ""
        self._extra = _proxy_authorization(plain)
        _TRANSPORTS.add(self)

    async def send(self, call: Call) -> HttpReply:
        """Send `call`; return its reply once the head has come, counted as under way until then.

        A kept connection that the other side closes at once, before it says anything, is replaced
        once, and counted in `call.replaced`: it closed while the call was on its way. A call that
        may be sent only `once` is never sent again.
        """
        counts = observer.request_counts()
        if counts is not None:
            counts.outbound_in_flight += 1
        try:
            pool = self._pools.get(asyncio.get_running_loop()) or self._open_pool()
            head = request_head(
                call, host=self._host, target=self._absolute + call.target, extra=self._extra
            )
            connection, kept = pool.take_unused(), True
            if connection is not None:
                connection_at_hand()
            else:
                asked_at = perf_counter()
                connection, kept = await pool.take()
                connection_waited(perf_counter() - asked_at, self.address.origin)
            idle_s = self._limits.idle_s if call.idle_timeout_s is None else call.idle_timeout_s
            while True:
                waiting = connection.begin(
                    head, call.body, no_body=call.method == "HEAD", idle_s=idle_s
                )
                try:
                    return await waiting
                except asyncio.CancelledError:
                    connection.abandon(waiting)
                    raise
                except ConnectionLost:
                    if not kept or call.once or _was_at_work(connection):
                        raise
                finally:
                    del waiting  # it holds its error, whose traceback holds this frame
                call.replaced += 1
                kept = False
                connection, _ = await pool.take(fresh=True)
        finally:
            if counts is not None:
                counts.outbound_in_flight -= 1

    async def connect(self) -> None:
        """Open a connection for the next call and send nothing; raises `TransportError`."""
        pool = self._pools.get(asyncio.get_running_loop()) or self._open_pool()
        connection, _ = await pool.take(fresh=True)
        connection.idle_since = asyncio.get_running_loop().time()
        connection.released(connection, True)

    async def aclose(self) -> None:
        """Close the connections of the running loop; calls under way end undisturbed."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            pool.aclose()
            # Closing a socket takes the loop one more turn.
            await asyncio.sleep(0)

    def _open_pool(self) -> Pool:
        pool = Pool(self._limits, Dialler(self.address, self._proxy, self._limits.connect_s))
        self._pools[asyncio.get_running_loop()] = pool
        return pool

    def _forget(self) -> "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Pool]":
        pools, self._pools = self._pools, weakref.WeakKeyDictionary()
        return pools


def _was_at_work(connection: Connection) -> bool:
    """Say whether the other side has heard of the call, as far as that can be told."""
    return connection.heard or connection.age_of_call() > _ON_ITS_WAY_S


def _proxy_authorization(proxy: Address | None) -> bytes:
    if proxy is None or proxy.authorization is None:
        return b""
    return f"proxy-authorization: {proxy.authorization}\r\n".encode("ascii")


_TRANSPORTS: weakref.WeakSet[HttpTransport] = weakref.WeakSet()
# Never freed: closing what is in them would reach into the parent's event loop, which is shared
# with the child by way of its epoll descriptor.
_OF_THE_PARENT: list[object] = []


def _forget_pools() -> None:
    """Drop every connection in a forked child, without touching its socket."""
    _OF_THE_PARENT.extend(list(transport._forget().items()) for transport in _TRANSPORTS)  # noqa: SLF001 - same module


os.register_at_fork(after_in_child=_forget_pools)
