"""The trace a provider is told of: our own call to it, within whatever trace the client has."""

from collections.abc import AsyncGenerator

import pytest

from nemo_gym.telemetry.trace_context import TraceContext, parse_traceparent
from nemo_gym.transport.base import Call, RawHeaders
from nemo_gym.transport.http import HttpTransport
from support.model_server import serve_model
from support.provider import Provider, rate_limited, serve_provider
from support.spans import by_name, tracing_on

TRACE = 0x4BF92F3577B34DA6A3CE929D0E0E4736
PARENT = (b"traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
UNSAMPLED = (b"traceparent", PARENT[1].replace(b"-01", b"-00"))
STATES = [(b"tracestate", b"foo=1"), (b"tracestate", b"bar=2")]
NAMES = (b"traceparent", b"tracestate")


@pytest.fixture
async def provider() -> AsyncGenerator[Provider]:
    async with serve_provider(Provider()) as served:
        yield served


async def told(provider: Provider, headers: RawHeaders, path: str = "/v1/responses") -> RawHeaders:
    """Return the trace headers that reach the provider of a call with `headers`."""
    async with serve_model(provider.origin) as served:
        transport = HttpTransport(served.origin)
        reply = await transport.send(Call("POST", path, headers, b'{"model": "m"}'))
        await reply.read()
        await transport.aclose()
    return [pair for pair in provider.requests[-1].pairs if pair[0] in NAMES]


def context_of(headers: RawHeaders) -> TraceContext:
    [parent] = [value for name, value in headers if name == b"traceparent"]
    context = parse_traceparent(parent)
    assert context is not None
    return context


async def test_the_call_to_the_provider_is_the_parent_there_and_the_clients_span_is_above(
    provider: Provider,
) -> None:
    with tracing_on() as on:
        reached = await told(provider, [PARENT, *STATES])

    ours = by_name(on)["chat configured"].context
    assert (context_of(reached).trace_id, context_of(reached).span_id) == (TRACE, ours.span_id)
    assert [value for name, value in reached if name == b"tracestate"] == [b"foo=1,bar=2"]


@pytest.mark.parametrize(
    "headers",
    [[], [(b"traceparent", b"garbage"), *STATES], STATES, [PARENT, PARENT]],
    ids=["none", "garbage", "state-alone", "two-parents"],
)
async def test_where_the_client_has_no_trace_the_provider_is_told_of_the_one_that_begins(
    provider: Provider, headers: RawHeaders
) -> None:
    with tracing_on() as on:
        reached = await told(provider, headers)

    ours = by_name(on)["chat configured"].context
    assert [name for name, _ in reached] == [b"traceparent"]
    assert context_of(reached) == ours
    assert ours.trace_id != TRACE


async def test_every_try_of_a_call_is_told_of_it(provider: Provider) -> None:
    provider.script(rate_limited("0"))

    with tracing_on() as on:
        await told(provider, [PARENT])

    tries = [[p for p in one.pairs if p[0] in NAMES] for one in provider.requests]
    ours = by_name(on)["chat configured"].context
    assert [context_of(one).span_id for one in tries] == [ours.span_id] * 2


async def test_a_call_that_is_no_model_call_is_told_of_the_request(provider: Provider) -> None:
    with tracing_on() as on:
        reached = await told(provider, [PARENT], "/v1/messages/count_tokens")

    [request] = on.ended
    assert context_of(reached) == request.context


async def test_a_trace_that_is_not_recorded_is_told_as_it_came(provider: Provider) -> None:
    with tracing_on():
        reached = await told(provider, [UNSAMPLED, *STATES])

    assert reached == [UNSAMPLED, (b"tracestate", b"foo=1,bar=2")]


async def test_a_trace_that_begins_unrecorded_is_told_so_instead_of_garbage(
    provider: Provider,
) -> None:
    with tracing_on(0.0):
        reached = await told(provider, [(b"traceparent", b"garbage")])

    assert not context_of(reached).sampled


async def test_a_call_made_without_http_is_told_of_too(provider: Provider) -> None:
    with tracing_on() as on, on.begin("rollout", "internal", None):
        async with serve_model(provider.origin) as served:
            await served.model.responses({"input": "hello"})

    ours = by_name(on)["chat configured"].context
    assert context_of([p for p in provider.requests[-1].pairs if p[0] in NAMES]) == ours


@pytest.mark.parametrize(
    "headers", [[PARENT, *STATES], [(b"traceparent", b"garbage")], []], ids=["valid", "not", "none"]
)
async def test_while_traces_are_off_what_the_client_sent_passes_as_it_came(
    provider: Provider, headers: RawHeaders
) -> None:
    assert await told(provider, headers) == headers
