"""An app on a port of its own, in the loop of the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from uvicorn import Config, Server

__all__ = ["serving"]


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    """Serve `app` and return its URL."""
    server = Server(Config(app, port=0, log_level="critical", lifespan="off"))
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
