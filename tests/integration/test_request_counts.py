"""Ten thousand requests at once through the stack of a server: every total is exact."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Literal, Never

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.servers.lifespan import AppLifespan
from nemo_gym.servers.raw import raw_route, send_json
from nemo_gym.servers.stack import new_app
from nemo_gym.telemetry.live import server_counts
from nemo_gym.telemetry.names import PHASE_AFTER_START, PHASE_BEFORE_START
from nemo_gym.telemetry.observer import request_counts
from nemo_gym.transport.response import CallFailed, ServerResponse
from support.meters import metering

REQUESTS = 10_000
NAME = "counted_server"

Fate = Literal["raises", "breaks off", "gone early", "gone late", "stopped"] | int
"""How a request ends; a number is the status of a whole answer."""

RARE: dict[int, Fate] = {
    0: "raises",
    1: "breaks off",
    2: "gone early",
    3: "gone late",
    4: "stopped",
    5: 503,
    6: 429,
    7: 201,
    8: 500,
}


def fate_of(number: int) -> Fate:
    """Return each rare fate for one request in twenty-three, and a plain 200 for the others."""
    return RARE.get(number % 23, 200)


async def endpoint(scope: Scope, _receive: Receive, send: Send) -> None:
    """Do what the scope tells, once the request may end."""
    fate = scope["fate"]
    if fate in ("breaks off", "gone late"):
        await send({"type": "http.response.start", "status": 200, "headers": []})
    await scope["may_end"].wait()
    if isinstance(fate, int):
        await send_json(send, fate, {})
    elif fate in ("raises", "breaks off"):
        raise LookupError(fate)
    else:
        await forever()


async def request(app: ASGIApp, fate: Fate, may_end: asyncio.Event) -> None:
    """Send one request to an app, and go away from it where that is its fate."""

    async def receive() -> Message:
        await may_end.wait()
        if fate in ("gone early", "gone late"):
            return {"type": "http.disconnect"}
        return await forever()

    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": "/run",
        "raw_path": b"/run",
        "query_string": b"",
        "headers": [],
        "fate": fate,
        "may_end": may_end,
    }
    await app(scope, receive, nowhere)


async def forever() -> Never:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


async def nowhere(_message: Message) -> None:
    await asyncio.sleep(0)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


async def serve_all(app: ASGIApp, fates: list[Fate], under_way: Callable[[], int]) -> None:
    """Send a request for each fate; the first may end once all of them are under way."""
    may_end = asyncio.Event()
    tasks = [asyncio.create_task(request(app, fate, may_end)) for fate in fates]
    await until(lambda: under_way() == len(fates))
    may_end.set()
    for task, fate in zip(tasks, fates, strict=True):
        if fate == "stopped":
            task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert Counter(type(end) for end in ends if end is not None) == {
        asyncio.CancelledError: fates.count("stopped"),
        LookupError: fates.count("breaks off"),
    }


async def test_ten_thousand_requests_at_once_are_counted_exactly_however_they_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # The traceback of a failure takes longer to write than a request.
    caplog.set_level("CRITICAL", "nemo_gym.servers.wall")
    fates = [fate_of(number) for number in range(REQUESTS)]
    app = new_app(NAME, lambda inner: inner, lambda _path, exc: (500, {"error": str(exc)}))
    raw_route(app, "/run", endpoint)
    live = server_counts(NAME)
    with metering() as metered:
        lifespan = AppLifespan(app)
        await lifespan.start()
        counts = request_counts()
        assert counts is not None
        await serve_all(app, fates, lambda: counts.in_flight)
        responses = metered.values("gym.server.responses_total")
        cancelled = metered.values("gym.server.requests.cancelled_total")
        unhandled = metered.values("gym.server.requests.unhandled_exceptions_total")
        in_flight = metered.values("gym.server.requests.in_flight")
        await lifespan.stop()

    n = Counter(fates)
    began_and_went_no_further = n["breaks off"] + n["gone late"]
    assert responses == {
        (200,): n[200] + began_and_went_no_further,
        (201,): n[201],
        (429,): n[429],
        (500,): n["raises"] + n[500],
        (503,): n[503],
    }
    assert cancelled == {
        ("/run", PHASE_BEFORE_START): n["gone early"],
        ("/run", PHASE_AFTER_START): n["gone late"],
    }
    assert unhandled == {(): n["raises"] + n["breaks off"]}
    assert in_flight == {(): 0}
    assert (live.requests, live.in_flight) == (REQUESTS, 0)
    assert live.errors == n[500] + n[503] + n["raises"] + n["breaks off"]


@pytest.mark.parametrize("passed_on", [True, False])
async def test_a_failure_that_another_server_had_is_no_exception_of_this_one(
    caplog: pytest.LogCaptureFixture, passed_on: bool
) -> None:
    caplog.set_level("CRITICAL", "nemo_gym.servers.wall")
    answer = ServerResponse(
        500, [], b"{}", method="POST", url="http://v/verify", url_path="/verify",
        server_name="v", server_kind="resources_servers",
    )  # fmt: skip

    async def fails(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise CallFailed(answer) if passed_on else KeyError("own")

    app = new_app(NAME, lambda inner: inner, lambda _path, exc: (500, {"error": str(exc)}))
    raw_route(app, "/run", fails)
    with metering() as metered:
        lifespan = AppLifespan(app)
        await lifespan.start()
        await request(app, 200, asyncio.Event())
        unhandled = metered.values("gym.server.requests.unhandled_exceptions_total")
        responses = metered.values("gym.server.responses_total")
        await lifespan.stop()

    assert unhandled == {(): 0 if passed_on else 1}
    assert responses == {(500,): 1}
