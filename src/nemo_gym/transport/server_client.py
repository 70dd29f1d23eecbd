"""How servers of a run call each other by name, and any URL by its address.

A name and a path go in, a whole `ServerResponse` comes out. Whether the call crosses a socket is
the directory's business; the app at the other end sees the same either way.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Unpack

from nemo_gym.errors import ConnectFailed, ConnectionLost, TransportError
from nemo_gym.ids import RolloutId, current_rollout_id, split_prefix
from nemo_gym.transport.address import parse_address
from nemo_gym.transport.base import Call, RawHeaders, Reply, Transport
from nemo_gym.transport.directory import Directory, Spread
from nemo_gym.transport.http import HttpTransport, Limits
from nemo_gym.transport.outgoing import Options, call_for
from nemo_gym.transport.response import (
    CallFailed,
    ServerResponse,
    get_response_json,
    raise_for_status,
)
from nemo_gym.transport.retry import RetryRule
from nemo_gym.transport.tree import ReadOnlyTree

__all__ = [
    "CallFailed",
    "ServerClient",
    "ServerResponse",
    "close_connections",
    "get_response_json",
    "propagate_with",
    "raise_for_status",
    "request",
]

_KINDS = frozenset(("resources_servers", "responses_api_agents", "responses_api_models"))
_CONNECTING = RetryRule(tries=4, total_s=10.0)
_IDEMPOTENT = frozenset(("GET", "HEAD", "PUT", "DELETE", "OPTIONS"))


class ServerClient:
    """Calls the servers of a run by name.

    `global_config` is the configuration of the run; components read it as `global_config_dict`.
    """

    def __init__(self, directory: Directory, global_config: Mapping[str, object]) -> None:
        self.directory = directory
        self.global_config_dict = (
            global_config
            if isinstance(global_config, ReadOnlyTree)
            else ReadOnlyTree(global_config)
        )

    async def get(
        self,
        server_name: str,
        url_path: str,
        *,
        spread: Spread = "rollout",
        **options: Unpack[Options],
    ) -> ServerResponse:
        """Send a GET request; see `call`."""
        return await self.call("GET", server_name, url_path, spread=spread, **options)

    async def post(
        self,
        server_name: str,
        url_path: str,
        *,
        spread: Spread = "rollout",
        **options: Unpack[Options],
    ) -> ServerResponse:
        """Send a POST request; see `call`."""
        return await self.call("POST", server_name, url_path, spread=spread, **options)

    async def put(
        self,
        server_name: str,
        url_path: str,
        *,
        spread: Spread = "rollout",
        **options: Unpack[Options],
    ) -> ServerResponse:
        """Send a PUT request; see `call`."""
        return await self.call("PUT", server_name, url_path, spread=spread, **options)

    async def delete(
        self,
        server_name: str,
        url_path: str,
        *,
        spread: Spread = "rollout",
        **options: Unpack[Options],
    ) -> ServerResponse:
        """Send a DELETE request; see `call`."""
        return await self.call("DELETE", server_name, url_path, spread=spread, **options)

    async def call(
        self,
        method: str,
        server_name: str,
        url_path: str,
        *,
        spread: Spread = "rollout",
        **options: Unpack[Options],
    ) -> ServerResponse:
        """Call `url_path` of the server called `server_name` and return its whole response.

        `json` takes a JSON value, a pydantic model or bytes; `data` bytes, text or form fields;
        `cookies` a `SimpleCookie` or a mapping; `timeout` is the longest silence in seconds, None
        bears any. `spread="load"` takes the instance with the fewest calls under way, and sends the
        call no second time. An error status is a response like any other (`raise_for_status`).
        Raises `TransportError` when no whole response came; only a connection that was never made
        is tried again.
        """
        call = call_for(method, url_path, options)
        # A process that died at work on a rollout has left captured calls: another one must not
        # go on under the same id.
        call.once = spread == "load"
        instance = self.directory.pick(server_name, _rollout_of(url_path), spread)
        instance.in_flight += 1
        try:
            status, headers, body = await _fetch(
                instance.transport, call, over_http=instance.origin is not None
            )
        except TransportError as problem:
            problem.args = (f"{server_name}: {problem}", *problem.args[1:])
            raise
        finally:
            instance.in_flight -= 1
        return ServerResponse(
            status,
            headers,
            body,
            method=method,
            url=f"{instance.origin or ''}{call.target}",
            url_path=url_path,
            server_name=server_name,
            server_kind=self._kind_of(server_name),
        )

    async def aclose(self) -> None:
        """Close every connection of the running loop."""
        await self.directory.aclose()

    def _kind_of(self, server_name: str) -> str | None:
        entry = self.global_config_dict.get(server_name)
        return next((kind for kind in entry if kind in _KINDS), None) if entry else None


async def request(method: str, url: str, **options: Unpack[Options]) -> ServerResponse:
    """Call any URL over pooled connections and return the whole response.

    Options as of `ServerClient.call`. Raises `AddressInvalid` for a URL that names no server,
    `TransportError` when no whole response came. A connection that cannot be made is tried again;
    one that was lost before an answer too, where the method is idempotent.
    """
    address = parse_address(url)
    transport = _TRANSPORTS.get(address.origin)
    if transport is None:
        transport = _TRANSPORTS[address.origin] = HttpTransport(address, limits=Limits(idle_s=None))
    target = (address.path or "/") + (f"?{address.query}" if address.query else "")
    if url.partition("?")[0].endswith("/") and address.path:
        target = target.replace(address.path, address.path + "/", 1)
    call = call_for(method.upper(), target, options)
    if address.authorization is not None:
        call.headers.append((b"authorization", address.authorization.encode("ascii")))
    status, headers, body = await _fetch(transport, call, over_http=True)
    return ServerResponse(
        status,
        headers,
        body,
        method=call.method,
        url=f"{address.origin}{address.path}",
        url_path=address.path or "/",
    )


async def close_connections() -> None:
    """Close what `request` keeps open on the running loop."""
    for transport in _TRANSPORTS.values():
        await transport.aclose()


def propagate_with(inject: Callable[[RawHeaders], None] | None) -> None:
    """Have `inject` add its headers (a trace context) to every outgoing call; None adds none."""
    _HOOKS.inject = inject


@dataclass(slots=True)
class _Hooks:
    inject: Callable[[RawHeaders], None] | None = None


_HOOKS = _Hooks()
_TRANSPORTS: dict[str, HttpTransport] = {}


async def _fetch(
    transport: Transport, call: Call, *, over_http: bool
) -> tuple[int, RawHeaders, bytes]:
    if _HOOKS.inject is not None:
        _HOOKS.inject(call.headers)
    reply = await (_connected(transport, call) if over_http else transport.send(call))
    try:
        return reply.status, reply.headers, await reply.read()
    except BaseException:
        await reply.aclose()
        raise


async def _connected(transport: Transport, call: Call) -> Reply:
    """Send, trying again where nothing can have happened at the other side."""
    loop = asyncio.get_running_loop()
    began, tries = loop.time(), 0
    while True:
        tries += 1
        try:
            return await transport.send(call)
        except (ConnectFailed, ConnectionLost) as problem:
            if isinstance(problem, ConnectionLost) and call.method not in _IDEMPOTENT:
                raise
            wait_s = _CONNECTING.wait_s(
                tries=tries,
                elapsed_s=loop.time() - began,
                jitter=random.random(),  # noqa: S311 - it spreads tries, no secret
            )
            if wait_s is None:
                raise
        await asyncio.sleep(wait_s)


def _rollout_of(url_path: str) -> RolloutId | None:
    """Return the rollout that a call belongs to: that of the running request, or of the path."""
    current = current_rollout_id()
    return split_prefix(url_path.encode())[0] if current is None else current
