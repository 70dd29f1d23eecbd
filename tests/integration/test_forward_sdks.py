"""The official clients through a model server: they notice no difference."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anthropic
import openai
import pytest

from support.model_server import KEY, serve_model
from support.provider import (
    Answer,
    Behaviour,
    Provider,
    ToolCall,
    rate_limited,
    serve_provider,
    unauthorised,
)

TEXT = "The answer is \\boxed{A}."
CALL = Answer(text="", tool_calls=(ToolCall("send_mail", '{"to": "Jørgen"}', "call_9"),))
ASKED = [{"role": "user", "content": "?"}]


@pytest.fixture
async def provider() -> AsyncGenerator[Provider]:
    async with serve_provider() as served:
        yield served


@asynccontextmanager
async def openai_client(
    provider: Provider, path: str = "/v1", max_tries: int = 7
) -> AsyncGenerator[openai.AsyncOpenAI]:
    async with (
        serve_model(provider.base_url, "openai_model", max_tries=max_tries) as served,
        openai.AsyncOpenAI(
            base_url=served.origin + path, api_key="the-clients-own", max_retries=0
        ) as client,
    ):
        yield client


@asynccontextmanager
async def anthropic_client(
    provider: Provider, path: str = "", model_type: str = "anthropic_model"
) -> AsyncGenerator[anthropic.AsyncAnthropic]:
    async with (
        serve_model(provider.origin, model_type) as served,
        anthropic.AsyncAnthropic(
            base_url=served.origin + path, api_key="the-clients-own", max_retries=0
        ) as client,
    ):
        yield client


@pytest.mark.parametrize("path", ["/v1", "/ng-rollout/3-0-a1/v1"])
async def test_responses_whole_and_streamed(provider: Provider, path: str) -> None:
    async with openai_client(provider, path) as client:
        whole = await client.responses.create(model="any", input="?")
        async with client.responses.stream(model="any", input="?") as stream:
            streamed = await stream.get_final_response()

    assert whole.output_text == streamed.output_text == TEXT
    assert whole.model == "configured"
    assert streamed.usage is not None
    assert streamed.usage.total_tokens == 19
    assert {request.target for request in provider.requests} == {"/v1/responses"}


async def test_chat_whole_and_streamed(provider: Provider) -> None:
    async with openai_client(provider) as client:
        whole = await client.chat.completions.create(model="any", messages=ASKED)  # type: ignore[arg-type]
        stream = await client.chat.completions.create(
            model="any",
            messages=ASKED,  # type: ignore[arg-type]
            stream=True,
        )
        assert isinstance(stream, openai.AsyncStream)
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]

    assert whole.choices[0].message.content == "".join(pieces) == TEXT


@pytest.mark.parametrize("model_type", ["anthropic_model", "vllm_model"])
async def test_messages_whole_and_streamed(provider: Provider, model_type: str) -> None:
    async with anthropic_client(provider, model_type=model_type) as client:
        whole = await client.messages.create(model="any", max_tokens=9, messages=ASKED)  # type: ignore[arg-type]
        async with client.messages.stream(
            model="any",
            max_tokens=9,
            messages=ASKED,  # type: ignore[arg-type]
        ) as stream:
            streamed = await stream.get_final_message()

    assert [block.model_dump()["text"] for block in whole.content] == [TEXT]
    assert [block.model_dump()["text"] for block in streamed.content] == [TEXT]
    assert streamed.usage.output_tokens == 7


async def test_tool_calls_arrive_in_every_dialect(provider: Provider) -> None:
    provider.default = Behaviour(answer=CALL)
    async with openai_client(provider) as client, anthropic_client(provider) as messages:
        response = await client.responses.create(model="any", input="?")
        completion = await client.chat.completions.create(model="any", messages=ASKED)  # type: ignore[arg-type]
        message = await messages.messages.create(model="any", max_tokens=9, messages=ASKED)  # type: ignore[arg-type]

    item = response.output[0].model_dump()
    function = completion.choices[0].message.model_dump()["tool_calls"][0]["function"]
    block = message.content[0].model_dump()
    assert (item["name"], item["arguments"]) == ("send_mail", '{"to": "Jørgen"}')
    assert (function["name"], function["arguments"]) == ("send_mail", '{"to": "Jørgen"}')
    assert (block["name"], block["input"]) == ("send_mail", {"to": "Jørgen"})


async def test_models_are_listed_and_tokens_counted(provider: Provider) -> None:
    async with openai_client(provider) as client, anthropic_client(provider) as messages:
        models = [model.id async for model in client.models.list()]
        counted = await messages.messages.count_tokens(model="any", messages=ASKED)  # type: ignore[arg-type]

    assert models == ["provider-model"]
    assert counted.input_tokens == 42
    assert provider.requests[-1].json()["model"] == "configured"


async def test_sub_routes_of_responses_are_reached(provider: Provider) -> None:
    async with openai_client(provider) as client:
        fetched = await client.responses.retrieve("resp_1")
        await client.responses.input_items.list("resp_1")

    assert fetched.id == "resp_1"
    targets = [request.target for request in provider.requests]
    assert targets == ["/v1/responses/resp_1", "/v1/responses/resp_1/input_items"]


async def test_the_servers_key_takes_the_place_of_the_clients(provider: Provider) -> None:
    async with openai_client(provider) as client, anthropic_client(provider) as messages:
        await client.responses.create(model="any", input="?")
        await messages.messages.create(model="any", max_tokens=9, messages=ASKED)  # type: ignore[arg-type]

    first, second = provider.requests
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert second.headers["x-api-key"] == KEY
    assert "the-clients-own" not in str(first.headers) + str(second.headers)


async def test_a_server_without_a_key_passes_the_clients_on(provider: Provider) -> None:
    async with (
        serve_model(provider.origin, "anthropic_model", api_key=None) as served,
        anthropic.AsyncAnthropic(base_url=served.origin, api_key="the-clients-own") as client,
    ):
        await client.messages.create(model="any", max_tokens=9, messages=ASKED)  # type: ignore[arg-type]

    assert provider.requests[0].key == "the-clients-own"


async def test_beta_headers_and_queries_pass(provider: Provider) -> None:
    async with anthropic_client(provider) as client:
        await client.beta.messages.create(
            model="any",
            max_tokens=9,
            messages=ASKED,  # type: ignore[arg-type]
            betas=["context-1m-2026-08-07"],
            extra_query={"beta": "true"},
        )

    assert provider.requests[0].target == "/v1/messages?beta=true"
    assert provider.requests[0].headers["anthropic-beta"] == "context-1m-2026-08-07"


async def test_a_refused_key_is_an_authentication_error_without_the_key(
    provider: Provider,
) -> None:
    provider.default = unauthorised()
    async with openai_client(provider) as client:
        with pytest.raises(openai.AuthenticationError) as refused:
            await client.responses.create(model="any", input="?")

    assert "Incorrect API key: ***" in str(refused.value)
    assert KEY not in str(refused.value) + str(refused.value.response.headers)


async def test_a_rate_limit_that_stays_reaches_the_client_as_it_was(provider: Provider) -> None:
    provider.default = rate_limited("0.01")
    async with openai_client(provider, max_tries=3) as client:
        with pytest.raises(openai.RateLimitError) as refused:
            await client.responses.create(model="any", input="?")

    assert refused.value.response.json() == {
        "error": {"message": "Slow down, please.", "type": "rate_limit_error"}
    }
    assert refused.value.response.headers["retry-after"] == "0.01"
    assert provider.counts.requests == 3


async def test_the_wrong_dialect_is_explained_in_that_dialect(provider: Provider) -> None:
    async with anthropic_client(provider, model_type="openai_model") as client:
        with pytest.raises(anthropic.BadRequestError) as refused:
            await client.messages.create(model="any", max_tokens=9, messages=ASKED)  # type: ignore[arg-type]

    assert refused.value.body["type"] == "error"  # type: ignore[index]
    assert "Model types that speak Messages: anthropic_model, vllm_model" in str(refused.value)
    assert provider.counts.requests == 0


async def test_a_provider_that_is_away_is_a_502_that_names_it(provider: Provider) -> None:
    async with serve_provider() as gone:
        pass
    async with openai_client(gone, max_tries=2) as client:
        with pytest.raises(openai.InternalServerError) as failed:
            await client.responses.create(model="any", input="?")

    assert failed.value.status_code == 502
    assert f"{gone.origin}: Connection refused (2 tries" in str(failed.value)
