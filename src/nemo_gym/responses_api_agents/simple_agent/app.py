"""The built-in agent: a tool-calling loop over the Responses API.

One rollout is seed_session, the loop, verify. Bodies pass through as bytes where nothing in them
has to be changed. A class that overrides `run` or `responses` gets the validated route for it.
"""

from http.cookies import SimpleCookie
from typing import Any, ClassVar

from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import ConfigDict, Field

from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import (
    BaseResponsesAPIAgentConfig,
    Body,
    SimpleResponsesAPIAgent,
)
from nemo_gym.config_types import ROLLOUT_PATH_PREFIX, ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.responses_api_agents.simple_agent.loop import Loop
from nemo_gym.responses_api_agents.simple_agent.tools import ToolBox, tool_names
from nemo_gym.server_utils import raise_for_status
from nemo_gym.servers.failures import VerifierFailed
from nemo_gym.servers.raw import RawReply, json_object, json_route
from nemo_gym.servers.recorder import SILENT, Recorder
from nemo_gym.wire.dialects import DialectName
from nemo_gym.wire.json import dumps, loads_strictly

__all__ = [
    "SimpleAgent",
    "SimpleAgentConfig",
    "SimpleAgentRunRequest",
    "SimpleAgentVerifyRequest",
    "SimpleAgentVerifyResponse",
]


class SimpleAgentConfig(BaseResponsesAPIAgentConfig):
    """Settings of the agent."""

    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    max_steps: int | None = Field(default=100, ge=1)
    """Model calls in one rollout at most. null: as many as it takes."""


class SimpleAgentRunRequest(BaseRunRequest):
    """A task row."""

    model_config = ConfigDict(extra="allow")


class SimpleAgentVerifyRequest(BaseVerifyRequest):
    """A task row and the conversation."""

    model_config = ConfigDict(extra="allow")


class SimpleAgentVerifyResponse(BaseVerifyResponse):
    """What the verifier answered."""

    model_config = ConfigDict(extra="allow")


class SimpleAgent(SimpleResponsesAPIAgent):
    """Asks the model, runs the tools it calls, until it calls none; then verifies."""

    CALLED_DIALECTS: ClassVar[tuple[DialectName, ...]] = ("responses",)

    config: SimpleAgentConfig

    async def responses(
        self,
        request: Request,
        response: Response,
        body: NeMoGymResponseCreateParamsNonStreaming = Body(),  # noqa: B008 - FastAPI's way
    ) -> NeMoGymResponse:
        """Run the loop on a create request; cookies of the resources server go in and come out."""
        cookies = SimpleCookie(dict(request.cookies))
        url_path = self.url_path_for_request("/v1/responses", request)
        answer = await self._converse(body.model_dump(), url_path, cookies, SILENT)
        for name, morsel in cookies.items():
            response.set_cookie(name, morsel.value)
        return NeMoGymResponse.model_validate(answer)

    async def run(self, request: Request, body: SimpleAgentRunRequest) -> SimpleAgentVerifyResponse:
        """Run one rollout."""
        raw = dumps(body.model_dump(mode="json"))
        reply = await self._roll_out(raw, json_object(raw), dict(request.cookies))
        return SimpleAgentVerifyResponse.model_validate(loads_strictly(reply))

    def recorder_for(self, row: dict[str, Any]) -> Recorder:
        """Return what is told of the turns and tool calls of one rollout; override to keep them."""
        return SILENT

    def add_routes(self, app: FastAPI) -> None:
        """Register routes without validation for what is not overridden."""
        if type(self).responses is SimpleAgent.responses:
            json_route(app, "/v1/responses", self._raw_responses)
            prefixed = f"/{ROLLOUT_PATH_PREFIX}/{{rollout_id}}/v1/responses"
            json_route(app, prefixed, self._raw_responses)
        if type(self).run is SimpleAgent.run:
            json_route(app, "/run", self._raw_run)
        super().add_routes(app)

    async def _raw_responses(self, request: Request, params: dict[str, Any]) -> RawReply:
        cookies = SimpleCookie(dict(request.cookies))
        url_path = self.url_path_for_request("/v1/responses", request)
        answer = await self._converse(params, url_path, cookies, SILENT)
        lines = [morsel.OutputString().encode("latin-1") for morsel in cookies.values()]
        return RawReply(dumps(answer), [(b"set-cookie", line) for line in lines])

    async def _raw_run(self, request: Request, row: dict[str, Any]) -> bytes:
        return await self._roll_out(await request.body(), row, dict(request.cookies))

    async def _roll_out(self, raw: bytes, row: dict[str, Any], cookies: dict[str, str]) -> bytes:
        """Run one rollout; return what the verifier answered, as it came."""
        name = self.config.resources_server.name
        seeded = await self.server_client.post(
            server_name=name, url_path="/seed_session", json=raw, cookies=cookies
        )
        raise_for_status(seeded)
        session = SimpleCookie(cookies)
        session.update(seeded.cookies)
        answer = await self._answer(row, session)
        verified = await self.server_client.post(
            server_name=name,
            url_path="/verify",
            json=_verify_body(raw, row, answer),
            cookies=session,
        )
        raise_for_status(verified)
        judged = await verified.read()
        if not judged.lstrip().startswith(b"{"):
            said = judged[:80].decode("utf-8", "replace")
            raise VerifierFailed(f"{name}: POST /verify answered no verify response: {said}")
        return judged

    async def _answer(self, row: dict[str, Any], session: SimpleCookie) -> bytes:
        """Return the conversation as JSON; `session` grows with the cookies it met."""
        params = row.get("responses_create_params")
        if type(self).responses is SimpleAgent.responses:
            url_path = self.url_path_for_run("/v1/responses", row)
            answer = await self._converse(params or {}, url_path, session, self.recorder_for(row))
            return dumps(answer)
        # Overridden: only its own route knows which of request, response and body it takes.
        reply = await self.server_client.post(
            server_name=self.config.name,
            url_path=self.url_path_for_run("/v1/responses", row),
            json=params or {},
            cookies=session,
        )
        raise_for_status(reply)
        session.update(reply.cookies)
        return await reply.read()

    async def _converse(
        self, params: dict[str, Any], url_path: str, cookies: SimpleCookie, recorder: Recorder
    ) -> dict[str, Any]:
        given = params.get("input")
        if not isinstance(given, str | list | None):
            kind = type(given).__name__
            raise HTTPException(422, f"responses_create_params.input is {kind}: give text or items")
        name = self.config.resources_server.name
        declared = tool_names(params.get("tools") or [])
        tools = ToolBox(self.server_client, name, declared, cookies)
        model = self.config.model_server.name
        loop = Loop(self.server_client, model, url_path, tools, self.config.max_steps, recorder)
        return await loop.run(params)


def _verify_body(raw: bytes, row: dict[str, Any], answer: bytes) -> bytes:
    """Return the task row with `response` added, the row's own bytes untouched."""
    if "response" in row:
        raw = dumps({key: value for key, value in row.items() if key != "response"})
    head = raw.rstrip()[:-1].rstrip()
    comma = b"" if head == b"{" else b","
    return b"".join((head, comma, b'"response":', answer, b"}"))


if __name__ == "__main__":
    SimpleAgent.run_webserver()
