"""What telemetry hears of calls that a model server passes on, and of the servers themselves."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from nemo_gym.telemetry.live import LiveCounts, live_counts
from nemo_gym.telemetry.observer import observe_event_loop, request_counts
from nemo_gym.transport.base import Call
from nemo_gym.transport.http import HttpTransport
from support.meters import Metered, metering
from support.model_server import serve_model
from support.provider import Answer, Behaviour, Provider, rate_limited, serve_provider

ROUTES = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages"}
STREAM = b'{"stream": true, "model": "m"}'
CONFIGURED = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "vllm",
    "gen_ai.request.model": "configured",
}


@pytest.fixture
async def provider() -> AsyncGenerator[Provider]:
    default = Behaviour(answer=Answer(tokens_in=120, tokens_out=7, cached=20))
    async with serve_provider(Provider(default=default)) as served:
        yield served


@pytest.fixture
def metered() -> Iterator[Metered]:
    with metering() as metered:
        yield metered


class Counted:
    """How far the always-running counts moved since this was made."""

    def __init__(self) -> None:
        self._before = self._read(live_counts())

    @staticmethod
    def _read(live: LiveCounts) -> dict[str, float]:
        names = ("model_calls", "model_errors", "model_retries", "tokens_in", "tokens_out")
        return {name: getattr(live, name) for name in (*names, "model_calls_in_flight")}

    def __call__(self) -> dict[str, float]:
        now = self._read(live_counts())
        return {name: now[name] - was for name, was in self._before.items() if now[name] != was}


async def ask(origin: str, dialect: str, body: bytes = b'{"model": "m"}') -> int:
    transport = HttpTransport(origin)
    reply = await transport.send(Call("POST", ROUTES[dialect], [], body))
    await reply.read()
    await transport.aclose()
    return reply.status


def series(held: Any) -> list[dict[str, str]]:
    return [labels for labels, _ in held.read()]


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("dialect", list(ROUTES))
async def test_a_call_is_counted_with_its_tokens_whatever_it_speaks(
    provider: Provider, metered: Metered, dialect: str, stream: bool
) -> None:
    counted = Counted()
    prompt = 140 if dialect == "messages" else 120  # Messages counts cached tokens apart

    async with serve_model(provider.origin) as served:
        await ask(served.origin, dialect, STREAM if stream else b"{}")

    recorded = metered.exporting.recorded
    kinds = {labels["nemo.gym.token.kind"]: count for labels, count in recorded.model_tokens.read()}
    assert counted() == {"model_calls": 1, "tokens_in": prompt, "tokens_out": 7}
    assert series(recorded.model_duration) == [CONFIGURED]
    assert series(recorded.model_first_chunk) == ([CONFIGURED] if stream else [])
    assert kinds.items() >= {"input": prompt, "output": 7, "cache_read": 20}.items()


@pytest.mark.usefixtures("metered")
async def test_a_call_is_under_way_until_its_provider_has_answered(provider: Provider) -> None:
    provider.default = Behaviour(hang="before_head")
    counted = Counted()

    async with serve_model(provider.origin) as served, observe_event_loop("server"):
        counts = request_counts()
        assert counts is not None
        asking = asyncio.ensure_future(ask(served.origin, "chat"))
        await provider.until(lambda counts: counts.in_flight == 1)
        during, leaving = counted(), counts.outbound_in_flight
        asking.cancel()
        await provider.until(lambda counts: counts.cancelled == 1)

    assert during == {"model_calls_in_flight": 1}
    # This test's own call, and that of the model server.
    assert (leaving, counts.outbound_in_flight) == (2, 0)
    assert counted() == {"model_calls": 1, "model_errors": 1}


@pytest.mark.parametrize("prefix", ["", "/ng-rollout/1-0"], ids=["plain", "under-a-rollout"])
@pytest.mark.parametrize("dialect", list(ROUTES))
async def test_a_client_that_leaves_a_model_call_is_counted_by_the_route_it_left(
    provider: Provider, metered: Metered, dialect: str, prefix: str
) -> None:
    provider.default = Behaviour(hang="before_head")

    async with serve_model(provider.origin) as served:
        transport = HttpTransport(served.origin)
        call = Call("POST", prefix + ROUTES[dialect], [], b'{"model": "m"}')
        asking = asyncio.ensure_future(transport.send(call))
        await provider.until(lambda counts: counts.in_flight == 1)
        asking.cancel()
        await provider.until(lambda counts: counts.cancelled == 1)
        cancelled = await cancellations(metered)
        await transport.aclose()

    assert cancelled == {(ROUTES[dialect], "before_response_start"): 1}


async def cancellations(metered: Metered) -> dict[Any, Any]:
    """Return the clients that went away, by route and phase, as soon as one is counted."""
    async with asyncio.timeout(5):
        while not (found := metered.values("gym.server.requests.cancelled_total")):  # noqa: ASYNC110 - plain integers tell nobody
            await asyncio.sleep(0)
    return found


async def test_tries_and_errors_are_told_by_their_reason(
    provider: Provider, metered: Metered
) -> None:
    provider.script(rate_limited("0"), Behaviour(status=400))
    counted = Counted()

    async with serve_model(provider.origin) as served:
        status = await ask(served.origin, "responses")

    recorded = metered.exporting.recorded
    assert status == 400
    assert counted() == {"model_calls": 1, "model_errors": 1, "model_retries": 1}
    assert [labels["error.type"] for labels in series(recorded.model_retries)] == ["rate_limit"]
    assert [labels["error.type"] for labels in series(recorded.model_errors)] == ["client_error"]


async def test_a_provider_that_is_not_there_is_an_error_of_the_connection(metered: Metered) -> None:
    async with serve_model("http://127.0.0.1:9", max_tries=1) as served:
        status = await ask(served.origin, "chat")

    recorded = metered.exporting.recorded
    assert status == 502
    assert [labels["error.type"] for labels in series(recorded.model_errors)] == ["connection"]


async def test_what_never_reaches_the_provider_is_no_call_of_it(provider: Provider) -> None:
    counted = Counted()

    async with serve_model(provider.origin, "openai_model") as served:
        statuses = [await ask(served.origin, "messages")]
        transport = HttpTransport(served.origin)
        reply = await transport.send(Call("GET", "/v1/models"))
        await reply.read()
        await transport.aclose()

    assert statuses == [400]
    assert counted() == {}


async def test_a_call_made_without_http_is_counted_too(provider: Provider) -> None:
    counted = Counted()

    async with serve_model(provider.origin) as served:
        await served.model.responses({"input": "hello"})

    assert counted() == {"model_calls": 1, "tokens_in": 120, "tokens_out": 7}


async def test_a_forwarder_that_sets_no_model_names_the_one_that_is_asked_for(
    provider: Provider, metered: Metered
) -> None:
    async with serve_model(provider.origin, "openai_model", model="", bare=True) as served:
        await ask(served.origin, "chat", b'{"model": "asked-for"}')
        await ask(served.origin, "chat", b"{}")

    found = series(metered.exporting.recorded.model_duration)
    assert [labels["gen_ai.provider.name"] for labels in found] == ["openai", "openai"]
    assert [labels["gen_ai.request.model"] for labels in found] == ["asked-for", "unknown"]


async def test_requests_of_a_server_are_counted_by_its_name(provider: Provider) -> None:
    provider.script(Behaviour(), Behaviour(status=500))

    async with serve_model(provider.origin, max_tries=1) as served:
        await ask(served.origin, "chat")
        counts = live_counts().servers["policy_model"]
        before = (counts.requests, counts.errors)
        await ask(served.origin, "chat")

    assert (counts.requests - before[0], counts.errors - before[1]) == (1, 1)
    assert counts.in_flight == 0


async def test_waiting_for_a_connection_is_counted(provider: Provider) -> None:
    before, before_s = live_counts().connection_waits, waited_by_server_s()

    transport = HttpTransport(provider.origin)
    await (await transport.send(Call("GET", "/v1/models"))).read()
    waited_s = live_counts().connection_waited_s
    await (await transport.send(Call("GET", "/v1/models"))).read()
    await transport.aclose()

    assert live_counts().connection_waits - before == 2
    assert live_counts().connection_waited_s == waited_s
    assert live_counts().connection_waited_s > 0
    assert waited_by_server_s() > before_s


def waited_by_server_s() -> float:
    """Return the waits for all servers: past a limit, which a test run reaches, by no name."""
    return sum(live_counts().connection_waits_to.values())


async def test_a_provider_that_says_nothing_is_a_timeout(
    provider: Provider, metered: Metered
) -> None:
    provider.default = Behaviour(hang="before_head")

    async with serve_model(provider.origin, max_tries=1, idle_timeout_s=0.05) as served:
        status = await ask(served.origin, "chat")

    errors = series(metered.exporting.recorded.model_errors)
    assert status == 504
    assert [labels["error.type"] for labels in errors] == ["timeout"]
