"""A client that goes away, over HTTP and in-process: the call is cancelled, one row says so."""

import asyncio
import socket
import threading
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from nemo_gym.capture.middleware import model_call_stack
from nemo_gym.capture.store import CaptureStore
from nemo_gym.observability.model_calls import await_model_call_capture_quiescence
from nemo_gym.servers.guard import DisconnectGuard
from nemo_gym.transport.base import Call
from nemo_gym.transport.in_process import InProcessTransport
from support.asgi import body, start
from support.served import served

SSE = (b"content-type", b"text/event-stream")
HELLO = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"hello"}}]}\n\n'
LAST = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
PING = b": ping\n\n"
PHASES: dict[str, list[Message]] = {
    "before_headers": [],
    "before_first_data": [start(200, SSE), body(PING, more=True)],
    "mid_stream": [start(200, SSE), body(HELLO, more=True)],
    "before_terminal": [start(200, SSE), body(HELLO, more=True), body(LAST, more=True)],
}


class Stuck:
    """Sends what the phase needs, then hangs like a provider that does not answer."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.hanging = threading.Event()
        self.cancelled = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            continue
        for message in self.messages:
            await send(dict(message))
        self.hanging.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


@pytest.fixture
def store(tmp_path: Path) -> Generator[CaptureStore]:
    made = CaptureStore(tmp_path)
    yield made
    made.close()


def check(store: CaptureStore, phase: str, app: Stuck) -> None:
    assert app.cancelled.is_set()
    assert asyncio.run(await_model_call_capture_quiescence("0-0", [store.directory]))
    (row,) = store.read("0-0")
    assert isinstance(row, dict)
    assert (row["error_category"], row["notes"]["phase"]) == ("cancelled", phase)
    assert row["request"] == {"model": "m"}
    assert ("hello" in str(row["response"])) == (phase in {"mid_stream", "before_terminal"})


def request(path: str, data: bytes) -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data


@pytest.mark.parametrize("phase", PHASES)
def test_a_client_that_goes_away_over_http(store: CaptureStore, phase: str) -> None:
    app = Stuck(PHASES[phase])
    stack = DisconnectGuard(model_call_stack(app, store=store, model_ref_name="m"))
    with served(stack) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(request("/ng-rollout/0-0/v1/chat/completions", b'{"model": "m"}'))
            assert app.hanging.wait(20)
        assert app.cancelled.wait(20)

    check(store, phase, app)


@pytest.mark.parametrize("phase", PHASES)
def test_a_client_that_goes_away_in_process(store: CaptureStore, phase: str) -> None:
    app = Stuck(PHASES[phase])
    stack = DisconnectGuard(model_call_stack(app, store=store, model_ref_name="m"))

    async def act() -> None:
        transport = InProcessTransport(stack)
        call = Call("POST", "/ng-rollout/0-0/v1/chat/completions", body=b'{"model": "m"}')
        sending = asyncio.create_task(transport.send(call))
        if phase == "before_headers":
            await asyncio.to_thread(app.hanging.wait, 20)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        else:
            reply = await sending
            for _ in PHASES[phase][1:]:
                await reply.chunk()
            await reply.aclose()
        await asyncio.to_thread(app.cancelled.wait, 20)
        await transport.aclose()

    asyncio.run(act())

    check(store, phase, app)


async def test_a_call_in_process_leaves_the_row_of_one_over_http(tmp_path: Path) -> None:
    store = CaptureStore(tmp_path)
    data = HELLO + LAST + b"data: [DONE]\n\n"

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            continue
        await send(start(200, SSE))
        for offset in range(0, len(data), 7):
            await send(body(data[offset : offset + 7], more=True))
        await send(body())

    stack = DisconnectGuard(model_call_stack(app, store=store, model_ref_name="m"))
    transport = InProcessTransport(stack)
    call = Call("POST", "/ng-rollout/0-0/v1/chat/completions", body=b'{"model": "m"}')
    reply = await transport.send(call)
    got = await reply.read()
    await transport.aclose()

    assert got == data
    (row,) = store.read("0-0")
    assert isinstance(row, dict)
    assert (row["error_category"], row["response_raw"]) == (None, data.decode())
    store.close()
