"""One connection to the provider: a request comes, its answer is played, the next comes."""

import asyncio
import gzip
import random
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import asdict

import brotli
import httptools
import orjson
import zstandard

from support.provider_state import Behaviour, Moment, Provider, ReceivedRequest, behaviour_of

__all__ = ["Connection"]

_ROUTES = {
    b"/v1/chat/completions": "chat",
    b"/v1/responses": "responses",
    b"/v1/messages": "messages",
}


class Connection(asyncio.Protocol):
    """One connection: a request comes, its answer is played, the next comes."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.parser = httptools.HttpRequestParser(self)
        self.transport: asyncio.Transport
        self.task: asyncio.Task[None] | None = None
        self.target = b""
        self.headers: dict[str, str] = {}
        self.pairs: list[tuple[bytes, bytes]] = []
        self.body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop has its own class
        self.provider.counts.connections += 1
        self.provider.connections.add(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.provider.connections.discard(self.transport)
        if self.task is not None and not self.task.done():
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self.target, self.headers, self.pairs, self.body = b"", {}, [], []

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")
        self.pairs.append((name, value))

    def on_headers_complete(self) -> None:
        if self.headers.get("expect") == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        request = ReceivedRequest(
            self.parser.get_method().decode(),
            self.target.decode("latin-1"),
            self.headers,
            b"".join(self.body),
            self.pairs,
        )
        path = self.target.partition(b"?")[0]
        if path.startswith(b"/_"):
            self._answer_control(path, request)
            return
        self._count_in(request)
        dialect = _ROUTES.get(path)
        if dialect is None:
            self._finish(*_side_route(path))
            return
        behaviour = self.provider.behaviour_for(request)
        pieces = self.provider.pieces_for(dialect, request, behaviour)
        head, pieces = _framed(behaviour, pieces)
        if behaviour.plain:
            self._finish(head, b"".join(pieces))
        else:
            self.task = asyncio.get_running_loop().create_task(self._play(behaviour, head, pieces))

    def _count_in(self, request: ReceivedRequest) -> None:
        counts = self.provider.counts
        counts.requests += 1
        counts.in_flight += 1
        counts.peak_in_flight = max(counts.peak_in_flight, counts.in_flight)
        if keep := self.provider.keep_requests:
            self.provider.requests.append(request)
            if len(self.provider.requests) > keep:
                self.provider.requests.popleft()
        self.provider.changed.set()

    def _finish(self, head: bytes, body: bytes) -> None:
        self.transport.write(head + body)
        self.provider.counts.in_flight -= 1
        self.provider.counts.completed += 1
        self.provider.changed.set()

    def _answer_control(self, path: bytes, request: ReceivedRequest) -> None:
        body = b"{}"
        if path == b"/_counts":
            body = orjson.dumps(asdict(self.provider.counts))
        elif path == b"/_script":
            self.provider.forget_script()
            self.provider.script(*(behaviour_of(item) for item in orjson.loads(request.body)))
        elif path == b"/_default":
            self.provider.default = behaviour_of(orjson.loads(request.body))
        self.transport.write(_head(200, len(body)) + body)

    async def _play(self, b: Behaviour, head: bytes, pieces: list[bytes]) -> None:
        counts = self.provider.counts
        try:
            whole = await self._played(b, head, pieces)
            counts.completed += whole
            counts.broken += not whole
        except asyncio.CancelledError:
            counts.cancelled += 1
        finally:
            counts.in_flight -= 1
            self.provider.changed.set()

    async def _played(self, b: Behaviour, head: bytes, pieces: list[bytes]) -> bool:
        """Return whether the answer went out whole."""
        if b.delay_s:
            began = time.perf_counter()
            vary = 1 + b.delay_spread * random.uniform(-1, 1)  # noqa: S311
            await asyncio.sleep(b.delay_s * vary)
            if b.delay_spread:
                took = (time.perf_counter() - began) * 1000
                head = head[:-2] + b"x-delay-ms: %.3f\r\n\r\n" % took
        if b.invalid_http:
            self.transport.write(b"220 mail.example ESMTP\r\nthis is not HTTP\r\n")
            self.transport.close()
            return False
        if await self._broken(b, "before_head"):
            return False
        self.transport.write(head)
        if await self._broken(b, "after_head"):
            return False
        cut = len(pieces) // 2 if b.cut_after is None else b.cut_after
        mid_body = "mid_body" in (b.reset, b.close, b.hang)
        if mid_body and len(pieces) == 1:
            self.transport.write(pieces[0][: len(pieces[0]) // 2])
            cut = 0
        for number, piece in enumerate(pieces):
            if mid_body and number >= cut:
                break
            # Also without a delay, so that each piece is a write of its own.
            await asyncio.sleep(b.piece_delay_s)
            self.transport.write(piece)
        return not await self._broken(b, "mid_body")

    async def _broken(self, b: Behaviour, moment: Moment) -> bool:
        if b.reset == moment:
            await asyncio.sleep(0)
            linger = struct.pack("ii", 1, 0)  # RST, not FIN
            self.transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, linger
            )
            self.transport.abort()
        elif b.close == moment:
            self.transport.close()
        elif b.hang == moment:
            await asyncio.Event().wait()
        else:
            return False
        return True


def _head(status: int, length: int | None, content_type: str = "application/json") -> bytes:
    framing = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    return f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\n{framing}\r\n".encode() + (
        b"\r\n"
    )


def _framed(b: Behaviour, pieces: list[bytes]) -> tuple[bytes, list[bytes]]:
    """Return the head and the pieces as they go on the wire."""
    stream = pieces[0].startswith((b"data:", b"event:"))
    if b.encoding is not None:
        pieces = [_COMPRESS[b.encoding](b"".join(pieces))]
    if b.piece_size is not None:
        whole = b"".join(pieces)
        pieces = [whole[i : i + b.piece_size] for i in range(0, len(whole), b.piece_size)]
    kind = b.content_type or ("text/event-stream" if stream else "application/json")
    chunked = stream or b.piece_size is not None
    head = _head(b.status, None if chunked else len(pieces[0]), kind)
    extra = "".join(f"{name}: {value}\r\n" for name, value in b.headers)
    if b.encoding is not None:
        extra += f"content-encoding: {b.encoding}\r\n"
    head = head[:-2] + extra.encode("latin-1") + b"\r\n"
    if chunked:
        pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
        pieces[-1] += b"0\r\n\r\n"
    return head, pieces


_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "br": brotli.compress,
    "zstd": lambda body: zstandard.ZstdCompressor().compress(body),
}


def _side_route(path: bytes) -> tuple[bytes, bytes]:
    """Return head and body for what is not a model call."""
    status = 200
    value: dict[str, object]
    if path == b"/v1/models":
        model = {"id": "provider-model", "object": "model", "created": 1, "owned_by": "test"}
        value = {"object": "list", "data": [model]}
    elif path == b"/v1/messages/count_tokens":
        value = {"input_tokens": 42}
    elif path.startswith(b"/v1/responses/"):
        value = {"id": path.split(b"/")[3].decode("latin-1"), "object": "response"}
    elif path == b"/health":
        value = {"status": "ok"}
    else:
        status, value = 404, {"error": {"message": f"no route {path.decode('latin-1')}"}}
    body = orjson.dumps(value)
    return _head(status, len(body)), body
