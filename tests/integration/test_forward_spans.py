"""What the span of a call to a provider says of it: what was asked, and which model answered."""

import pytest

from nemo_gym.telemetry.tracing import EndedSpan
from nemo_gym.transport.base import Call
from nemo_gym.transport.http import HttpTransport
from support.model_server import serve_model
from support.provider import Answer, Behaviour, Provider, serve_provider
from support.spans import tracing_on

ROUTES = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages"}
LIMITS = {
    "responses": b'"max_output_tokens": 64',
    "chat": b'"max_completion_tokens": 64',
    "messages": b'"max_tokens": 64',
}


async def span_of(dialect: str, more: bytes) -> EndedSpan:
    """Return the span of a call with `more` in its body."""
    body = b'{"model": "m", "messages": [], "input": "say \\"model\\": \\"no\\"", %b}' % more
    default = Behaviour(answer=Answer(tokens_in=120, tokens_out=7))
    with tracing_on() as on:
        async with (
            serve_provider(Provider(default=default)) as provider,
            serve_model(provider.origin) as served,
        ):
            transport = HttpTransport(served.origin)
            reply = await transport.send(Call("POST", ROUTES[dialect], [], body))
            await reply.read()
            await transport.aclose()
    [asked] = [ended for ended in on.ended if ended.name.startswith("chat ")]
    return asked


@pytest.mark.parametrize("dialect", ROUTES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_call_says_what_was_asked_and_which_model_answered(
    dialect: str, stream: bool
) -> None:
    more = b'"temperature": 0.5, "stream": %b, ' % (b"true" if stream else b"false")

    told = (await span_of(dialect, more + LIMITS[dialect])).attributes

    assert told["gen_ai.request.temperature"] == 0.5
    assert told["gen_ai.request.max_tokens"] == 64
    assert told["gen_ai.response.model"] == "configured"
    assert told["gen_ai.request.stream"] is stream


@pytest.mark.parametrize("more", [b'"a": 1', b'"temperature": "hot", "max_tokens": true'])
async def test_what_is_not_known_is_not_said(more: bytes) -> None:
    told = (await span_of("chat", more)).attributes

    assert not [name for name in told if name.endswith(("temperature", "max_tokens"))]
