"""The environment: a row seeds a workplace, tools change it, the state that is left is judged."""

import json
from functools import cached_property
from importlib.resources import files
from typing import Any, ClassVar

from fastapi import FastAPI, HTTPException, Request
from pydantic import ConfigDict, Field
from starlette.types import Receive, Scope, Send

from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.resources_servers.raw_answers import front_json_route, with_members
from nemo_gym.resources_servers.workplace_tools.row import Task
from nemo_gym.resources_servers.workplace_tools.sessions import Session, Sessions
from nemo_gym.resources_servers.workplace_tools.toolbox import TOOLS, call_tool
from nemo_gym.resources_servers.workplace_tools.workplace import ToolMistake, Workplace
from nemo_gym.server_utils import SESSION_ID_KEY
from nemo_gym.servers.raw import raw_route, send_json

__all__ = ["WorkplaceTools", "WorkplaceToolsConfig", "WorkplaceToolsVerifyResponse"]

_NO_SESSION = "this session has no workplace: call /seed_session first, with its cookie afterwards"
_MOST_SHOWN = 20


class WorkplaceToolsConfig(BaseResourcesServerConfig):
    """Settings of the environment."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNSUPPORTED

    keep_session_s: float = Field(default=7200.0, gt=0)
    """How long a rollout that does nothing keeps its state, in seconds."""


class WorkplaceToolsVerifyResponse(BaseVerifyResponse):
    """The request with its reward: 1 when the state is exactly what was asked for, else 0."""

    model_config = ConfigDict(extra="allow")

    differences: list[str]
    """What is not as it should be, one sentence each, the first twenty."""
    num_differences: int
    num_tool_calls: int
    num_tool_errors: int
    """Tool calls that were answered with an error."""


class WorkplaceTools(SimpleResourcesServer):
    """Keeps a workplace for each rollout under way."""

    config: WorkplaceToolsConfig

    @cached_property
    def sessions(self) -> Sessions:
        """The rollouts under way."""
        return Sessions(self.config.keep_session_s)

    @cached_property
    def office(self) -> Workplace:
        """The workplace that every rollout begins with, before its row changes it."""
        text = files(__package__).joinpath("data", "workplace.json").read_text("utf-8")
        return Workplace.of(json.loads(text))

    def setup_webserver(self) -> FastAPI:
        """Return the app; a tool is called at its name, and what is no tool is told so there."""
        app = super().setup_webserver()
        if type(self).seed_session is WorkplaceTools.seed_session:
            front_json_route(app, "/seed_session", self._raw_seed_session)
        if type(self).verify is WorkplaceTools.verify:
            front_json_route(app, "/verify", self._raw_verify)
        raw_route(app, "/{tool}", self._raw_tool)
        return app

    async def seed_session(  # type: ignore[override]  # FastAPI gives what is asked for
        self, request: Request, body: BaseSeedSessionRequest
    ) -> BaseSeedSessionResponse:
        """Prepare the workplace of one rollout; raises `InvalidRow`."""
        await self._raw_seed_session(request, body.model_dump(mode="json"))
        return BaseSeedSessionResponse()

    async def verify(  # type: ignore[override]  # FastAPI gives what is asked for
        self, request: Request, body: BaseVerifyRequest
    ) -> WorkplaceToolsVerifyResponse:
        """Return the request with its reward, and forget the rollout."""
        judged = self._judged(request)
        return WorkplaceToolsVerifyResponse.model_validate({**body.model_dump(), **judged})

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """Return the metrics of the reward, and how many tool calls a rollout took and failed."""
        names = ("mean/num_tool_calls", "mean/num_tool_errors")
        more = {name: agent_metrics[name] for name in names if name in agent_metrics}
        return super().get_key_metrics(agent_metrics) | more

    async def _raw_seed_session(self, request: Request, row: dict[str, Any]) -> dict[str, Any]:
        self.sessions.begin(_session_id(request), Task.of(row, self.office))
        return {}

    async def _raw_verify(self, request: Request, _row: dict[str, Any]) -> bytes:
        return with_members(await request.body(), self._judged(request))

    def _judged(self, request: Request) -> dict[str, Any]:
        session = self.sessions.end(_session_id(request))
        if session is None:
            raise HTTPException(409, _NO_SESSION)
        wrong = session.task.judge(session.office)
        return {
            "reward": 0.0 if wrong else 1.0,
            "differences": wrong[:_MOST_SHOWN],
            "num_differences": len(wrong),
            "num_tool_calls": session.tool_calls,
            "num_tool_errors": session.tool_errors,
        }

    async def _raw_tool(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a tool call: its result, or an error that the model can read."""
        request = Request(scope, receive)
        body = await request.body()
        session = self.sessions.use(_session_id(request))
        if session is None:
            await send_json(send, 409, {"error": _NO_SESSION})
            return
        status, answer = _called(session, request.path_params["tool"], body)
        await send_json(send, status, answer)


def _called(session: Session, name: str, arguments: bytes) -> tuple[int, object]:
    session.tool_calls += 1
    try:
        return 200, call_tool(session.office, name, arguments)
    except ToolMistake as mistake:
        session.tool_errors += 1
        return 404 if name not in TOOLS else 400, {"error": str(mistake)}


def _session_id(request: Request) -> str:
    return str(request.session[SESSION_ID_KEY])


if __name__ == "__main__":
    WorkplaceTools.run_webserver()
