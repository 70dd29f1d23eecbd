"""Apps on sockets: we bind every socket and hand it in; the HTTP server's signal handling is off.

Comes in: an ASGI app and a bound socket. Goes out: a server in the running event loop that starts,
and stops within the grace it is given, whatever its clients do.
"""

import asyncio
import errno
import logging
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp

from nemo_gym.errors import ConfigMistake, PortInUse
from nemo_gym.servers.addresses import forget_origin, note_origin
from nemo_gym.servers.lifespan import AppLifespan

if TYPE_CHECKING:
    from uvicorn import Server

__all__ = ["AppServer", "bind_socket"]

_BACKLOG = 4096
# Longer than the client's pool keeps a connection: a server that closes first costs a retry.
_KEEP_ALIVE_S = 120
_TICK_S = 1.0
_LAST_WORDS_S = 0.5
"""Of all servers of a run, which is to be over two seconds after Ctrl-C."""


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    """Say whether a log record is of anything but the cancellation of a request.

    Requests are cancelled by the server that stops; its HTTP server would take that for a fault.
    """
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a socket bound to `host` and `port` (0: any free one).

    Raises `PortInUse`, and `ConfigMistake` for a host that is not of this machine.
    """
    family, kind, protocol, _, address = _address(host, port)
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.setblocking(False)
    except OSError as exc:
        sock.close()
        raise _unbound(host, port, exc) from exc
    return sock


class AppServer:
    """One app on one socket, in the running event loop."""

    def __init__(self, app: ASGIApp, sock: socket.socket, name: str) -> None:
        self.app = app
        self.name = name
        self._sock = sock
        self._lifespan = AppLifespan(app)
        self._server: Server | None = None
        self._ticking: asyncio.Task[None] | None = None

    @property
    def state(self) -> dict[str, Any]:
        """What the app's lifespan yielded; empty before `start`."""
        return self._lifespan.state

    async def start(self) -> None:
        """Run the app's start-up and accept connections; returns when it does.

        Raises `LifespanFailed` when the start-up raises; the socket is closed then.
        """
        # Only here: a parent that binds sockets for its children needs no HTTP server.
        from uvicorn import Config, Server  # noqa: PLC0415

        from nemo_gym.servers.http_head import BoundedHeads  # noqa: PLC0415

        try:
            await self._lifespan.start()
        except BaseException:
            self._sock.close()
            raise
        config = Config(
            self.app,
            http=BoundedHeads,
            ws="none",
            lifespan="off",
            interface="asgi3",
            proxy_headers=False,
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
        )
        config.load()
        logging.getLogger("uvicorn.error").addFilter(_is_no_cancellation)
        server = Server(config)
        server.lifespan = config.lifespan_class(config)
        server.lifespan.state = self._lifespan.state
        await server.startup(sockets=[self._sock])
        await server.on_tick(0)
        self._server = server
        note_origin(self.name, *self._sock.getsockname()[:2])
        self._ticking = asyncio.create_task(_tick(server))

    async def stop(self, grace_s: float, last_words_s: float = _LAST_WORDS_S) -> None:
        """Stop accepting, let requests end for `grace_s` seconds, then cancel what is left.

        What is cancelled is cut off after `last_words_s` more: until then it may make its row
        durable, which waits for the disk, and say that the server stops.
        """
        if self._server is None:
            self._sock.close()
            return
        server, self._server = self._server, None
        forget_origin(self.name)
        if self._ticking is not None:
            self._ticking.cancel()
        for listener in server.servers:
            listener.close()
        for connection in list(server.server_state.connections):
            connection.shutdown()
        await self._end_requests(server, grace_s, last_words_s)
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        await self._lifespan.stop()

    async def _end_requests(self, server: "Server", grace_s: float, last_words_s: float) -> None:
        for timeout in (grace_s, last_words_s):
            running = set(server.server_state.tasks)
            if not running:
                return
            _, left = await asyncio.wait(running, timeout=timeout)
            for task in left:
                task.cancel(f"{self.name} is stopping")


async def _tick(server: "Server") -> None:
    """Keep the date header right, as the HTTP server's own main loop does."""
    with suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(_TICK_S)
            await server.on_tick(0)


def _address(host: str, port: int) -> tuple[int, int, int, str, tuple[object, ...]]:
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
    except OSError as exc:
        raise ConfigMistake(
            f"cannot listen on {host!r}: {exc.strerror or exc}",
            mend="set `host` to an address of this machine, 127.0.0.1 as a rule",
        ) from exc
    return found[0]


def _unbound(host: str, port: int, exc: OSError) -> Exception:
    if exc.errno == errno.EADDRINUSE:
        return PortInUse(
            f"{host}:{port} is in use",
            mend="stop what holds the port, set another `port`, or leave it out to take a free one",
        )
    return ConfigMistake(
        f"cannot listen on {host}:{port}: {exc.strerror}",
        mend="set `host` and `port` to an address of this machine that this user may bind",
    )
