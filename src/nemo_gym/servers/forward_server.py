"""A model server in front of one provider: the forwarder in the stack of a model server.

A component derives from `ForwardingModel` and says which provider: its settings in, a `Provider`
out. The three methods of a model server are there for code that calls them without HTTP.
"""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any, NamedTuple

from fastapi import FastAPI
from pydantic import BaseModel

from nemo_gym.errors import CallTimeout, Doubt, TransportError, UserMistake
from nemo_gym.servers.forward import Forwarder
from nemo_gym.servers.forward_headers import HeaderRule
from nemo_gym.servers.forward_tries import Unanswered
from nemo_gym.servers.model import ModelServer, SimpleResponsesAPIModel
from nemo_gym.servers.openai_chat import NeMoGymChatCompletion
from nemo_gym.servers.openai_responses import NeMoGymResponse
from nemo_gym.servers.provider import Provider
from nemo_gym.servers.raw import RawRoute
from nemo_gym.transport.address import Address
from nemo_gym.transport.base import Call
from nemo_gym.transport.http import HttpTransport, Limits
from nemo_gym.transport.outgoing import json_bytes
from nemo_gym.transport.server_client import CallFailed, ServerResponse
from nemo_gym.wire.dialects import CHAT, MESSAGES, RESPONSES, Dialect

__all__ = ["ForwardingModel"]

_AT_START_S = 3.0
_WAIT = "wait; if no call is answered either, see what holds the provider up"
_START_IT = "start the provider, or correct its URL"
_GIVE_KEY = "give the provider's own key: policy_api_key in env.yaml, or --model-api-key KEY"


class ForwardingModel(SimpleResponsesAPIModel):
    """Forwards the dialects that its provider speaks, streaming included."""

    @abstractmethod
    def provider(self) -> Provider:
        """Return the provider that this server stands before."""

    @cached_property
    def forwarder(self) -> Forwarder:
        """The one forwarder of this server."""
        return Forwarder(self.provider())

    def model_routes(self) -> Iterable[RawRoute]:
        """Return the forwarder's routes."""
        return self.forwarder.routes()

    def setup_webserver(self) -> FastAPI:
        """Return the app: raw routes only, since the forwarder has one for every dialect."""
        app = ModelServer.setup_webserver(self)
        inner = app.router.lifespan_context

        @asynccontextmanager
        async def closing(served: FastAPI) -> AsyncGenerator[Any]:
            async with inner(served) as state:
                yield state
            await self.forwarder.aclose()

        app.router.lifespan_context = closing
        return app

    async def provider_problem(self) -> UserMistake | None:
        """Return why the provider cannot be used as things are; None when it answers.

        A `Doubt` where it takes a connection and is silent, which a busy one does.
        `where` is the setting that is to blame, as `NAME.SETTING`. Takes three seconds at most.
        """
        problems = await _problems(self.forwarder.provider)
        if not problems:
            return None
        # Of several replicas one may be slow and another away.
        found = [each for each in problems if each.kind is not Doubt] or problems
        # Replicas share their key: the first mend is a good beginning for all.
        _, part, mend, kind = found[0]
        settings = type(self.config).model_fields
        setting = next((f".{name}" for name in settings if name.endswith(part)), "")
        return kind(
            f"{self.config.name}: {'; '.join(each.what for each in found)}",
            where=f"{self.config.name}{setting}",
            mend=mend,
        )

    async def responses(self, body: Any) -> NeMoGymResponse:
        """Return the provider's answer to a Responses create request (a model or a mapping)."""
        return NeMoGymResponse.model_validate_json(await self._ask(RESPONSES, body))

    async def chat_completions(self, body: Any) -> NeMoGymChatCompletion:
        """Return the provider's answer to a Chat Completions create request."""
        return NeMoGymChatCompletion.model_validate_json(await self._ask(CHAT, body))

    async def messages(self, body: Any) -> Any:
        """Return the provider's answer to a Messages create request, as a JSON object."""
        answer = ServerResponse(200, [], await self._ask(MESSAGES, body), **_named(self, MESSAGES))
        return await answer.json()

    async def _ask(self, dialect: Dialect, body: BaseModel | Any) -> bytes:
        """Return the whole body of a successful answer.

        Raises `CallFailed` for an error status, `TransportError` where no answer came.
        """
        try:
            status, headers, answer = await self.forwarder.fetch(dialect, json_bytes(body))
        except Unanswered as unanswered:
            raise unanswered.problem from None
        response = ServerResponse(status, headers, answer, **_named(self, dialect))
        if not response.ok:
            raise CallFailed(response)
        return answer


def _named(server: ForwardingModel, dialect: Dialect) -> dict[str, Any]:
    path = dialect.route.decode()
    return {
        "method": "POST",
        "url": server.forwarder.provider.addresses[0].origin + path,
        "url_path": path,
        "server_name": server.config.name,
        "server_kind": "responses_api_models",
    }


class _Found(NamedTuple):
    """What is wrong with a provider."""

    what: str
    setting: str
    """What the name of the setting to blame ends in."""
    mend: str
    kind: type[UserMistake] = UserMistake


async def _problems(provider: Provider) -> list[_Found]:
    asked = (_problem(provider, at) for at in provider.addresses)
    return [problem for problem in await asyncio.gather(*asked) if problem is not None]


async def _problem(provider: Provider, address: Address) -> _Found | None:
    messages = provider.dialects[0] == MESSAGES.name
    headers = HeaderRule(provider, address).headers([], messages=messages)
    transport = HttpTransport(address, limits=Limits(_AT_START_S, _AT_START_S))
    try:
        reply = await transport.send(Call("GET", address.target("/v1/models"), headers))
        await reply.aclose()
    except CallTimeout as problem:
        # It takes connections: one that is busy, or loads its model, answers calls later.
        return _Found(f"the provider is slow to answer: {problem}", "base_url", _WAIT, Doubt)
    except TransportError as problem:
        return _Found(f"the provider does not answer: {problem}", "base_url", _START_IT)
    finally:
        await transport.aclose()
    # A 403 may only mean that this key must not list models; it can still be good for calls.
    if reply.status == 401:
        what = f"the provider at {address.origin} refuses the key ({reply.status})"
        return _Found(what, "api_key", _GIVE_KEY)
    return None
