"""A provider on loopback: Responses, Chat and Messages, JSON and SSE, with faults on demand.

In a test::

    async with serve_provider() as provider:
        provider.script(rate_limited("1"), Behaviour(answer=Answer("B")))
        ... calls to provider.origin ...
        assert provider.counts.requests == 2

As a process: `python -m support.provider` prints `{"origin": ...}` on its first line; `--help`
lists its options; `GET /_counts` reads the counts, `POST /_script` replaces the script (a list of
objects with the keys of `Behaviour`; `answer` an object with the keys of `Answer`).
"""

import argparse
import asyncio
import json
import signal
import ssl
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from support.provider_bodies import Answer, ToolCall
from support.provider_connection import Connection
from support.provider_state import (
    Behaviour,
    Counts,
    Provider,
    ReceivedRequest,
    behaviour_of,
    rate_limited,
    unauthorised,
)

__all__ = [
    "Answer",
    "Behaviour",
    "Counts",
    "Provider",
    "ReceivedRequest",
    "ToolCall",
    "rate_limited",
    "serve_provider",
    "unauthorised",
]


@asynccontextmanager
async def serve_provider(
    provider: Provider | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[Provider]:
    """Serve `provider` (a new one by default) on a port of the kernel's choice."""
    served = provider or Provider()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(served), host, port, ssl=tls)
    shown = f"[{host}]" if ":" in host else host
    served.origin = f"http://{shown}:{server.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        server.close()
        for transport in tuple(served.connections):
            transport.abort()
        # connection_lost comes one turn later and ends the tasks that still play.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await server.wait_closed()


async def _main() -> None:
    options = argparse.ArgumentParser(description="A provider on loopback.")
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=0)
    options.add_argument("--text", default=Answer().text)
    options.add_argument("--delay", type=float, default=0.0, help="seconds before each head")
    options.add_argument("--behaviour", default="{}", help="JSON form of the default Behaviour")
    given = options.parse_args()
    behaviour = {"answer": {"text": given.text}, "delay_s": given.delay}
    behaviour |= json.loads(given.behaviour)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    provider = Provider(default=behaviour_of(behaviour), keep_requests=0)
    async with serve_provider(provider, host=given.host, port=given.port):
        sys.stdout.write(json.dumps({"origin": provider.origin}) + "\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    import uvloop

    uvloop.run(_main())
