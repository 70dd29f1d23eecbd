"""Model servers of two methods: streams, errors of the provider, capture, and the small client."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from fastapi import Body

from nemo_gym.base_responses_api_model import (
    BaseResponsesAPIModelConfig,
    CaptureStore,
    SimpleResponsesAPIModel,
    read_model_call_records,
)
from nemo_gym.errors import ConfigMistake
from nemo_gym.openai_utils import (
    NeMoGymAsyncOpenAI,
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.servers.serve import AppServer, bind_socket
from nemo_gym.transport.directory import Directory
from nemo_gym.transport.response import CallFailed
from nemo_gym.transport.retry import RetryRule
from nemo_gym.transport.server_client import ServerClient, close_connections
from support.provider import Behaviour, Provider, rate_limited, serve_provider

_QUICK = RetryRule(tries=3, total_s=5.0, first_wait_s=0.01)
_CHAT = {"model": "m", "messages": [{"role": "user", "content": "q"}]}


class _Relay(SimpleResponsesAPIModel):
    """Asks a provider by the small client, as a stranger's model server does."""

    config: BaseResponsesAPIModelConfig
    client: NeMoGymAsyncOpenAI

    async def responses(
        self,
        body: NeMoGymResponseCreateParamsNonStreaming = Body(),  # noqa: B008 - FastAPI's way
    ) -> NeMoGymResponse:
        answer = await self.client.create_response(**body.model_dump())
        return NeMoGymResponse.model_validate(answer)

    async def chat_completions(
        self,
        body: NeMoGymChatCompletionCreateParamsNonStreaming = Body(),  # noqa: B008 - FastAPI's way
    ) -> NeMoGymChatCompletion:
        answer = await self.client.create_chat_completion(**body.model_dump())
        return NeMoGymChatCompletion.model_validate(answer)


def _holders(folder: Path, secret: bytes) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path.name for path in files if secret in path.read_bytes()]


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with serve_provider() as served:
        yield served
    await close_connections()


def _relay(provider: Provider, settings: dict[str, Any] | None = None) -> _Relay:
    return _Relay(
        config=BaseResponsesAPIModelConfig(name="policy_model"),
        server_client=ServerClient(
            Directory(), {"policy_api_key": "sk-secret-1", **(settings or {})}
        ),
        client=NeMoGymAsyncOpenAI(provider.origin, api_key="sk-secret-1", retry=_QUICK),
    )


async def _ask(relay: _Relay, path: str, body: dict[str, Any], **more: Any) -> Any:
    directory = relay.server_client.directory
    if "policy_model" not in directory.names():
        directory.register_local("policy_model", relay.setup_webserver())
    return await relay.server_client.post("policy_model", path, json=body, **more)


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
async def test_a_stream_can_be_read_by_the_official_client(provider: Provider, path: str) -> None:
    sock = bind_socket("127.0.0.1", 0)
    server = AppServer(_relay(provider).setup_webserver(), sock, "policy_model")
    await server.start()
    whole = NeMoGymResponse.model_validate(
        await NeMoGymAsyncOpenAI(provider.origin).create_response()
    )
    base_url = f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
    async with openai.AsyncOpenAI(base_url=base_url, api_key="x", max_retries=0) as client:
        if path == "/v1/responses":
            async with client.responses.stream(model="m", input="q") as stream:
                text = (await stream.get_final_response()).output_text
        else:
            async with client.chat.completions.stream(**_CHAT) as chat:  # type: ignore[arg-type]
                text = (await chat.get_final_completion()).choices[0].message.content or ""
    await server.stop(0.1)

    assert text == whole.output_text != ""


async def test_an_error_of_the_provider_reaches_the_caller_as_it_was(provider: Provider) -> None:
    provider.script(Behaviour(status=400, body=b'{"error": {"message": "sk-secret-1 is bad"}}'))

    reply = await _ask(_relay(provider), "/v1/chat/completions", _CHAT)

    assert reply.status == 400
    assert await reply.json() == {"error": {"message": "*** is bad"}}


async def test_an_exception_is_answered_in_the_dialect_of_the_route(provider: Provider) -> None:
    provider.script(Behaviour(status=200, body=b"[]"))

    reply = await _ask(_relay(provider), "/v1/chat/completions", _CHAT)

    error = (await reply.json())["error"]
    assert reply.status == 500
    assert "not an object" in error["message"]


async def test_the_client_tries_again_and_gives_up_with_the_last_answer(provider: Provider) -> None:
    client = NeMoGymAsyncOpenAI(f"{provider.origin}/v1/", retry=_QUICK)
    provider.script(rate_limited("0"))
    first = await client.create_response(model="m", input="q")
    provider.script(*[rate_limited("0")] * 9)

    with pytest.raises(CallFailed) as raised:
        await client.create_chat_completion(**_CHAT)

    assert first["output"]
    assert raised.value.status == 429
    assert provider.counts.requests == 2 + 3


async def test_the_key_is_sent_and_never_shown(provider: Provider) -> None:
    client = NeMoGymAsyncOpenAI(provider.origin, api_key="sk-secret-1")

    await client.create_response(model="m", input="q")

    assert dict(provider.requests[-1].headers)["authorization"] == "Bearer sk-secret-1"
    assert "sk-secret-1" not in repr(client)


async def test_prefixed_calls_are_captured_and_others_are_not(
    provider: Provider, tmp_path: Path
) -> None:
    on = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path)}
    relay = _relay(provider, on)

    await _ask(relay, "/ng-rollout/3-0/v1/chat/completions", _CHAT)
    await _ask(relay, "/v1/chat/completions", _CHAT)

    calls = read_model_call_records(CaptureStore(tmp_path), "3-0")
    assert [call.model_ref and call.model_ref.name for call in calls] == ["policy_model"]
    assert CaptureStore(tmp_path).rollouts() == ["3-0"]
    await relay.server_client.aclose()


@pytest.mark.parametrize("secret", ["sk-secret-1", "sk-of-the-agent", "planted-cookie"])
async def test_a_key_that_is_sent_as_the_id_of_a_session_is_not_stored(
    provider: Provider, tmp_path: Path, secret: str
) -> None:
    on = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path)}
    relay = _relay(provider, on)
    headers = {"Authorization": "Bearer sk-of-the-agent", "Cookie": "a=b; c=planted-cookie"}
    for given in (f"of-{secret}", "a-session"):
        ids = {"Session_Id": given, "X-Assistant-Message-Id": given}
        await _ask(relay, "/ng-rollout/3-0/v1/responses", {"input": "q"}, headers=headers | ids)

    told, kept = CaptureStore(tmp_path).read("3-0")
    for row, found in ((told, None), (kept, "a-session")):
        assert isinstance(row, dict)
        assert row.get("client_session_id") == row.get("client_assistant_message_id") == found
    assert await asyncio.to_thread(_holders, tmp_path, secret.encode()) == []
    await relay.server_client.aclose()


@pytest.mark.parametrize("directory", [None, "relative/path", "/proc/no/such/place"])
async def test_a_capture_directory_that_cannot_be_used_is_refused_at_start(
    provider: Provider, directory: str | None
) -> None:
    on = {"observability_enabled": True, "model_call_capture_dir": directory}

    with pytest.raises(ConfigMistake, match=str(directory)):
        _relay(provider, on).setup_webserver()


async def test_bodies_beyond_the_configured_size_are_cut_and_flagged(
    provider: Provider, tmp_path: Path
) -> None:
    on = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path)}
    relay = _relay(provider, {**on, "model_call_capture_max_body_bytes": 100})

    answer = await _ask(relay, "/ng-rollout/3-0/v1/chat/completions", _CHAT)

    (row,) = CaptureStore(tmp_path).read("3-0")
    assert isinstance(row, dict)
    assert row["response_raw"] == answer.body[:100].decode()
    assert row["request"] == _CHAT
    assert row["notes"] == {"truncated_at": 100, "truncated_bodies": ["response"]}
    assert row["error_category"] == "capture_parse_error"
    await relay.server_client.aclose()


async def test_capture_changes_no_byte_of_the_answer(provider: Provider, tmp_path: Path) -> None:
    body = json.dumps({"id": "x", "choices": [], "odd": 1.50}).encode()
    provider.script(*[Behaviour(status=200, body=body)] * 2)
    on = {"observability_enabled": True, "model_call_capture_dir": str(tmp_path)}

    captured = await _ask(_relay(provider, on), "/ng-rollout/1-0/v1/chat/completions", _CHAT)
    plain = await _ask(_relay(provider), "/ng-rollout/1-0/v1/chat/completions", _CHAT)

    assert captured.body == plain.body
