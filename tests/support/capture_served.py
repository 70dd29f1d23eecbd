"""`gym capture serve` in the loop of the test: a provider captured, on a port of its own."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from nemo_gym.capture.store import CaptureStore
from nemo_gym.ids import RolloutId
from nemo_gym.runtime.capture_server import CaptureServer, provider_at
from nemo_gym.servers.forward import Forwarder
from nemo_gym.servers.serve import AppServer, bind_socket

__all__ = ["capture_served"]


@asynccontextmanager
async def capture_served(
    provider_url: str, directory: Path, key: str | None = None
) -> AsyncGenerator[int]:
    """Serve until the block ends; yields the port. `key` is the server's own."""
    store = CaptureStore(directory)
    forwarder = Forwarder(provider_at(provider_url, key))
    sock = bind_socket("127.0.0.1", 0)
    server = AppServer(CaptureServer(forwarder, store, RolloutId("process")), sock, "serve")
    await server.start()
    try:
        yield sock.getsockname()[1]
    finally:
        await server.stop(0.05)
        store.close()
