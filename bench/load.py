"""A load generator that costs little: requests made beforehand, answers parsed by llhttp alone.

Comes in: an origin, requests as bytes, how many calls, how many at a time (one connection each).
Goes out: what each call took, and how many failed. A call is over with the last byte of its body.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import httptools

__all__ = ["Load", "make_calls", "request_bytes"]


def request_bytes(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: bench", *headers, f"content-length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass
class Load:
    """What came of it so far."""

    requests: Sequence[bytes]
    """Sent in turns."""
    left: Iterator[int]
    waits_ms: list[float] = field(default_factory=list)
    """What each call took, less what the provider says it took where it says so."""
    failed: int = 0


class _Caller(asyncio.Protocol):
    """One connection that makes one call after the other."""

    def __init__(self, load: Load, done: "asyncio.Future[None]") -> None:
        self._load = load
        self._done = done
        self._parser = httptools.HttpResponseParser(self)
        self._began: float | None = None
        self._provider_ms = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._next()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name == b"x-delay-ms":
            self._provider_ms = float(value)

    def on_message_complete(self) -> None:
        assert self._began is not None
        took_ms = (time.perf_counter() - self._began) * 1000
        self._load.waits_ms.append(took_ms - self._provider_ms)
        self._load.failed += self._parser.get_status_code() != 200
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._load.failed += self._began is not None
        if not self._done.done():
            self._done.set_result(None)

    def _next(self) -> None:
        number = next(self._load.left, None)
        if number is None:
            self._began = None
            self._transport.close()
            return
        requests = self._load.requests
        self._began = time.perf_counter()
        self._transport.write(requests[number % len(requests)])


async def make_calls(
    origin: str, requests: Sequence[bytes], calls: int, in_flight: int, spread_s: float = 0.0
) -> Load:
    """Make the calls. `spread_s`: time over which the callers begin, so as not to march in step."""
    loop = asyncio.get_running_loop()
    host, _, port = origin.removeprefix("http://").rpartition(":")
    load = Load(requests, iter(range(calls)))

    async def caller(number: int) -> None:
        await asyncio.sleep(number * spread_s / in_flight)
        done = loop.create_future()
        await loop.create_connection(lambda: _Caller(load, done), host, int(port))
        await done

    await asyncio.gather(*(caller(number) for number in range(in_flight)))
    return load
