"""What the stack of a server tells telemetry: requests, failures, clients gone, spans."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nemo_gym.capture.middleware import model_call_stack
from nemo_gym.servers.lifespan import AppLifespan
from nemo_gym.servers.raw import raw_route, send_json
from nemo_gym.servers.stack import GymApp, new_app
from nemo_gym.telemetry.names import PHASE_BEFORE_START
from nemo_gym.telemetry.observer import request_counts
from nemo_gym.transport.base import Call
from nemo_gym.transport.in_process import InProcessTransport
from support.meters import metering
from support.spans import tracing_on


def _layers(app: ASGIApp) -> ASGIApp:
    return model_call_stack(app, store=None, model_ref_name="policy_model")


@pytest.fixture
async def app() -> AsyncIterator[GymApp]:
    app = new_app("policy_model", _layers, lambda _path, exc: (500, {"error": str(exc)}))
    with metering():
        lifespan = AppLifespan(app)
        await lifespan.start()
        yield app
        await lifespan.stop()


def _counts() -> Any:
    counts = request_counts()
    assert counts is not None
    return counts


async def test_responses_are_counted_by_status_and_exceptions_beside(app: GymApp) -> None:
    @app.post("/breaks")
    async def breaks() -> None:
        raise LookupError

    transport = InProcessTransport(app)
    for target in ("/health", "/nowhere", "/health"):
        await (await transport.send(Call("GET", target))).read()
    await (await transport.send(Call("POST", "/breaks"))).read()
    await transport.aclose()

    counts = _counts()
    assert counts.responses == {200: 2, 404: 1, 500: 1}
    assert counts.unhandled_exceptions == 1
    assert counts.in_flight == 0


async def _left(app: GymApp, target: str, entered: asyncio.Event) -> None:
    """Call `target`, go away once its handler runs, and wait until the server has noticed."""
    transport = InProcessTransport(app)
    entered.clear()
    call = asyncio.ensure_future(transport.send(Call("POST", target, body=b"{}")))
    await entered.wait()
    assert _counts().in_flight == 1
    call.cancel()
    await asyncio.wait([call])
    async with asyncio.timeout(5):
        while _counts().in_flight:  # noqa: ASYNC110 - plain integers tell nobody
            await asyncio.sleep(0)
    await transport.aclose()


async def test_a_client_that_goes_away_is_counted_by_route_with_and_without_a_prefix(
    app: GymApp,
) -> None:
    entered = asyncio.Event()

    @app.post("/v1/{what}")
    async def waits(what: str) -> None:
        entered.set()
        await asyncio.Event().wait()

    for target in ("/v1/responses", "/ng-rollout/1-0/v1/responses"):
        await _left(app, target, entered)

    counts = _counts()
    assert counts.cancelled == 2
    assert counts.cancelled_by_route_and_phase == {("/v1/{what}", PHASE_BEFORE_START): 2}
    assert counts.in_flight == 0


async def test_a_client_that_leaves_a_raw_route_is_counted_by_its_template(app: GymApp) -> None:
    entered = asyncio.Event()

    async def waits(_scope: Scope, _receive: Receive, _send: Send) -> None:
        entered.set()
        await asyncio.Event().wait()

    raw_route(app, "/{tool}", waits)
    for target in ("/send_mail", "/ng-rollout/1-0/find_mail"):
        await _left(app, target, entered)

    assert _counts().cancelled_by_route_and_phase == {("/{tool}", PHASE_BEFORE_START): 2}


@pytest.mark.parametrize("prefix", ["", "/ng-rollout/1-0"], ids=["plain", "under-a-rollout"])
async def test_a_request_is_a_span_by_its_route_where_only_traces_are_on(prefix: str) -> None:
    app = new_app("policy_model", _layers, lambda _path, exc: (500, {"error": str(exc)}))

    async def answers(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send_json(send, 201, {})

    raw_route(app, "/{tool}", answers)
    transport = InProcessTransport(app)
    with tracing_on() as on:
        await (await transport.send(Call("POST", f"{prefix}/send_mail"))).read()
        await transport.aclose()

    [span] = on.ended
    assert (span.name, span.kind, span.error) == ("POST /{tool}", "server", None)
    assert span.attributes["nemo.gym.server"] == "policy_model"
    assert span.attributes["http.route"] == "/{tool}"
    assert span.attributes["http.response.status_code"] == 201
    assert span.attributes.get("nemo.gym.rollout.id") == ("1-0" if prefix else None)


@pytest.mark.parametrize("path", ["/send_mail", "/ng-rollout/1-0/send_mail"])
async def test_a_traced_request_leaves_no_scope_to_the_garbage_collector(path: str) -> None:
    app = new_app("policy_model", _layers, lambda _path, _exc: (500, {}))
    scopes: list[weakref.ref[object]] = []

    async def answers(scope: Scope, _receive: Receive, send: Send) -> None:
        held = {"of this scope alone"}
        scope["held"] = held
        scopes.append(weakref.ref(held))
        await send_json(send, 200, {})

    raw_route(app, "/{rest:path}", answers)

    async def request() -> None:
        what = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
        await app({**what, "query_string": b"", "headers": []}, _nothing, _nowhere)

    with tracing_on():
        await request()  # what is made once is made
        gc.disable()
        try:
            await request()
            assert scopes[-1]() is None
        finally:
            gc.enable()


async def _nothing() -> Message:
    return {"type": "http.request"}


async def _nowhere(_message: Message) -> None:
    """Send nothing to nobody."""
