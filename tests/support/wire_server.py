"""A server that says exactly the bytes a test gives it: for what no HTTP server would say."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

__all__ = ["Connection", "WireServer", "head_and_body", "serve_wire"]


@dataclass(slots=True)
class Connection:
    """One accepted connection."""

    number: int
    """1 for the first one of the server."""
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def request(self) -> bytes:
        """Read one request, head and body; raises `IncompleteReadError` when the client left."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        return head + await self.reader.readexactly(length)

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def client_leaves(self) -> None:
        """Return when the client has closed the connection."""
        while await self.reader.read(65536):
            pass


@dataclass(slots=True)
class WireServer:
    origin: str
    port: int
    connections: list[Connection] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)


Handler = Callable[[Connection], Awaitable[None]]


@asynccontextmanager
async def serve_wire(handler: Handler, host: str = "127.0.0.1") -> AsyncGenerator[WireServer]:
    """Run `handler` for each connection; a connection is closed when its handler returns."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(len(server.connections) + 1, reader, writer)
        server.connections.append(connection)
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handler(connection)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except asyncio.CancelledError:
            return
        finally:
            tasks.discard(task)
            writer.close()

    listener = await asyncio.start_server(accept, host, 0)
    port = listener.sockets[0].getsockname()[1]
    server = WireServer(f"http://{f'[{host}]' if ':' in host else host}:{port}", port)
    try:
        yield server
    finally:
        listener.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listener.wait_closed()


def head_and_body(body: bytes = b"ok", status: str = "200 OK", *headers: str) -> bytes:
    """Return a whole response with a content length."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body
