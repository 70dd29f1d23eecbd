"""An end that is waited for and does not come: what is held goes on, after its row."""

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from nemo_gym.capture.facts import CLIENT_WENT_AWAY
from nemo_gym.capture.memory import MemoryStore
from nemo_gym.capture.middleware import (
    ERROR_GRACE_S,
    EVENT_GRACE_S,
    CaptureMiddleware,
    CaptureSettings,
)
from support.asgi import Client, body, http_scope, start
from support.sse import typed

SSE = (b"content-type", b"text/event-stream")
RESPONSES = "/ng-rollout/3-1/v1/responses"
CREATED = typed("response.created", response={"id": "r", "output": []})
ERROR = typed("error", code="rate_limit_exceeded", message="slow down")
DELTA = typed("response.output_text.delta", output_index=0, delta="a")
FAILED = typed("response.failed", response={"id": "r", "status": "failed"})
PING = b": ping\n\n"


@dataclass
class Due:
    """A timer of the test: it is due when the test says so."""

    delay_s: float
    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Under:
    """A stream under way through the middleware; the test is the app."""

    store: MemoryStore = field(default_factory=MemoryStore)
    client: Client = field(default_factory=Client)
    timers: list[Due] = field(default_factory=list)
    send: Send | None = None
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _error: BaseException | None = None

    def later(self, delay_s: float, callback: Callable[[], None]) -> Due:
        self.timers.append(Due(delay_s, callback))
        return self.timers[-1]

    async def app(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        self.send = send
        await send(start(200, SSE))
        await self._over.wait()
        if self._error is not None:
            raise self._error

    async def begin(self) -> None:
        settings = CaptureSettings(self.store, "m", call_later=self.later)
        stack = CaptureMiddleware(self.app, settings)
        self.call = asyncio.create_task(self.client.call(stack, http_scope(RESPONSES)))
        await settled()

    async def give(self, *pieces: bytes) -> None:
        for piece in pieces:
            await self.given(body(piece, more=True))

    async def given(self, message: Message) -> None:
        assert self.send is not None
        await self.send(message)

    async def wait_is_over(self) -> None:
        [due] = [timer for timer in self.timers if not timer.cancelled]
        due.callback()
        await settled()

    async def end(self, error: BaseException | None = None) -> dict[str, Any]:
        self._error = error
        self._over.set()
        await self.call
        self.store.let_go()
        (row,) = self.store.read("3-1")
        assert not self.store.is_pending("3-1")
        return row

    @property
    def waits(self) -> list[float]:
        return [timer.delay_s for timer in self.timers if not timer.cancelled]


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def under() -> Under:
    made = Under()
    await made.begin()
    return made


async def test_an_error_after_which_nothing_comes_goes_on_after_its_row(under: Under) -> None:
    under.store.held = True
    await under.give(CREATED, ERROR, PING, PING)
    before = under.client.data
    waits = under.waits
    await under.wait_is_over()
    kept_back = under.client.data
    under.store.let_go()
    await settled()

    assert (before, kept_back) == (CREATED, CREATED)
    assert waits == [ERROR_GRACE_S]
    assert under.client.data == CREATED + ERROR + PING + PING
    row = await under.end(asyncio.CancelledError(CLIENT_WENT_AWAY))
    assert row["error_category"] == "upstream_error"
    assert row["response"]["error"]["code"] == "rate_limit_exceeded"
    assert row["notes"] == {"end_not_awaited": ERROR_GRACE_S}


async def test_what_comes_meanwhile_waits_its_turn_and_is_not_recorded(under: Under) -> None:
    under.store.held = True
    await under.give(CREATED, ERROR)
    await under.wait_is_over()
    sending = [asyncio.create_task(under.give(PING)), asyncio.create_task(under.give(FAILED))]
    await settled()
    before = under.client.data
    under.store.let_go()
    await asyncio.gather(*sending)
    await under.given(body())

    row = await under.end()
    assert before == CREATED
    assert under.client.data == CREATED + ERROR + PING + FAILED
    assert row["response_raw"].encode() == CREATED + ERROR


async def test_what_is_held_goes_on_at_once_where_the_stream_does(under: Under) -> None:
    await under.give(CREATED, ERROR)
    held = under.client.data
    await under.give(DELTA)

    assert held == CREATED
    assert under.client.data == CREATED + ERROR + DELTA
    assert under.waits == []
    await under.give(FAILED)
    row = await under.end()
    assert row["error_category"] == "upstream_error"
    assert "end_not_awaited" not in row.get("notes", {})


async def test_a_last_event_that_comes_in_pieces_is_waited_for_as_long_as_they_come(
    under: Under,
) -> None:
    name, data = FAILED.split(b"data", 1)
    await under.give(CREATED, name, b"data" + data[:9])
    first, second = under.timers
    await under.give(data[9:])

    assert (first.delay_s, second.delay_s) == (EVENT_GRACE_S, EVENT_GRACE_S)
    assert first.cancelled
    assert second.cancelled
    assert (await under.end())["response"]["status"] == "failed"
    assert under.client.data == CREATED + FAILED


async def test_half_an_event_goes_on_too_after_which_nothing_comes(under: Under) -> None:
    await under.give(CREATED, b"event: response.completed\n")
    await under.wait_is_over()

    assert under.client.data == CREATED + b"event: response.completed\n"
    row = await under.end()
    assert row["error_category"] == "stream_truncated"
    assert row["notes"] == {"end_not_awaited": EVENT_GRACE_S}


async def test_a_wait_that_is_over_late_does_nothing(under: Under) -> None:
    await under.give(CREATED, ERROR)
    await under.given(body(FAILED))
    under.timers[0].callback()

    assert (await under.end())["error_category"] == "upstream_error"
    assert under.client.data == CREATED + ERROR + FAILED


@pytest.mark.parametrize("how", ["m is stopping", CLIENT_WENT_AWAY])
async def test_a_call_that_ends_while_what_it_held_waits_for_its_row(
    under: Under, how: str
) -> None:
    under.store.held = True
    await under.give(CREATED, ERROR)
    await under.wait_is_over()
    ending = asyncio.create_task(under.end(asyncio.CancelledError(how)))
    await settled()
    under.store.let_go()
    row = await ending

    assert row["error_category"] == "upstream_error"
    whole = CREATED + ERROR
    assert under.client.data == (whole if how == "m is stopping" else CREATED)


async def test_a_loop_that_was_held_reads_what_has_come_before_it_gives_up() -> None:
    store, (near, far) = MemoryStore(), socket.socketpair()
    loop = asyncio.get_running_loop()
    more = asyncio.Event()
    loop.add_reader(near, more.set)

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(start(200, SSE))
        await send(body(ERROR, more=True))
        far.send(b"response.failed")
        time.sleep(2 * ERROR_GRACE_S)  # noqa: ASYNC251 - synchronous work of somebody else
        await more.wait()
        loop.remove_reader(near)
        await send(body(FAILED, more=True))
        await send(body(b""))

    with near, far:
        stack = CaptureMiddleware(app, CaptureSettings(store, "m"))
        await Client().call(stack, http_scope(RESPONSES))

    (row,) = store.read("3-1")
    assert row["response"]["status"] == "failed"
    assert "end_not_awaited" not in row.get("notes", {})
