"""An ASGI app on a loopback port, served by a loop in a thread of its own, and raw clients."""

import asyncio
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import uvicorn
import uvloop
from starlette.types import ASGIApp

__all__ = ["read_until", "served"]


@contextmanager
def served(app: ASGIApp) -> Generator[int]:
    """Serve `app` until the block ends; yields the port."""
    sock = socket.create_server(("127.0.0.1", 0), backlog=512)
    config = uvicorn.Config(app, lifespan="off", log_config=None, http="httptools", ws="none")
    server = uvicorn.Server(config)
    server.capture_signals = _no_signals  # type: ignore[method-assign]

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(server.serve(sockets=[sock]))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield sock.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)


@contextmanager
def _no_signals() -> Generator[None]:
    yield


def read_until(
    port: int, path: str, method: str, enough: Callable[[bytes, bytes], bool], body: bytes = b"{}"
) -> tuple[bytes, bytes]:
    """Make one call over a connection of its own; read until `enough(head, data)`; hang up.

    Chunked bodies are left as they are: a client that looks for a line finds it all the same.
    """
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(head + body)
        got = b""
        while True:
            start, separator, data = got.partition(b"\r\n\r\n")
            if separator and enough(start, data):
                return start, data
            piece = sock.recv(65536)
            if not piece:
                raise AssertionError(f"the connection ended early, after {got!r}")
            got += piece
