"""The base of an agent server: the harness that runs one rollout, and its correlation methods."""

from abc import abstractmethod
from typing import Any, ClassVar

from fastapi import FastAPI, Request
from starlette.types import ASGIApp

from nemo_gym.errors import ConnectFailed
from nemo_gym.ids import ROLLOUT_PATH_PREFIX, RolloutId, join_prefix, parse_rollout_id
from nemo_gym.observability.model_calls import observability_enabled_from_config
from nemo_gym.records.refs import ServerKind
from nemo_gym.servers.addresses import origin_here
from nemo_gym.servers.answers import redactor_of
from nemo_gym.servers.context import RolloutContext
from nemo_gym.servers.correlation import prefixed_base_url, rollout_of_body, rollout_of_request
from nemo_gym.servers.failures import classify, failure_body
from nemo_gym.servers.instance import BaseRunServerInstanceConfig
from nemo_gym.servers.metrics import agent_metrics, by_task, default_key_metrics, group_metrics
from nemo_gym.servers.openai_responses import NeMoGymResponse
from nemo_gym.servers.run_types import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseVerifyResponse,
)
from nemo_gym.servers.session import with_session
from nemo_gym.servers.simple_server import SimpleServer
from nemo_gym.servers.stack import new_app

__all__ = ["BaseResponsesAPIAgentConfig", "SimpleResponsesAPIAgent"]


class BaseResponsesAPIAgentConfig(BaseRunServerInstanceConfig):
    """Settings of an agent; agents add fields, references to other servers as a rule."""


class SimpleResponsesAPIAgent(SimpleServer):
    """A harness: `run` runs one rollout, `responses` its loop alone.

    Both may take `request: Request`, `response: Response` and `body` in any combination that
    FastAPI accepts.
    """

    KIND: ClassVar[ServerKind | None] = "responses_api_agents"

    config: BaseResponsesAPIAgentConfig

    def setup_webserver(self) -> FastAPI:
        """Return the app with `/run`, `/v1/responses` (prefixed too) and `/aggregate_metrics`."""
        redactor = redactor_of(self)

        def answer(_path: str, exc: BaseException) -> tuple[int, object]:
            return 500, failure_body(classify(exc).redacted(redactor.redact))

        app = new_app(self.config.name, self._layers, answer)
        self.add_routes(app)
        return app

    def add_routes(self, app: FastAPI) -> None:
        """Register the routes; what a subclass registers first is tried first."""
        # `Any` sends the class that was returned, not the one that was annotated.
        app.post("/v1/responses", response_model=Any)(self.responses)
        prefixed = f"/{ROLLOUT_PATH_PREFIX}/{{rollout_id}}/v1/responses"
        app.post(prefixed, response_model=Any)(self.responses)
        app.post("/run", response_model=Any)(self.run)
        app.post("/aggregate_metrics", response_model=Any)(self.aggregate_metrics)
        app.get("/aggregate_metrics", response_model=Any)(self.has_own_metrics)

    # Abstract without a signature: an agent chooses which of request, response and body it takes.
    @abstractmethod
    async def responses(self, *args: Any, **kwargs: Any) -> NeMoGymResponse:
        """Run the agent's loop on a create request; return the whole conversation."""

    @abstractmethod
    async def run(self, *args: Any, **kwargs: Any) -> BaseVerifyResponse:
        """Run one rollout: prepare the session, run the loop, verify."""

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """Return the metrics of the environment this agent is bound to, else the default ones."""
        resources_server = getattr(self.config, "resources_server", None)
        if resources_server is not None:
            reply = await self.server_client.post(
                server_name=resources_server.name, url_path="/aggregate_metrics", json=body
            )
            if reply.ok:
                return AggregateMetrics.model_validate(await reply.json())
        tasks = by_task(body.verify_responses)
        metrics = agent_metrics(tasks)
        return AggregateMetrics(
            group_level_metrics=group_metrics(tasks),
            agent_metrics=metrics,
            key_metrics=default_key_metrics(metrics),
        )

    async def has_own_metrics(self) -> Any:
        """Say whether the metrics of this agent's rollouts are other than the default ones."""
        if type(self).aggregate_metrics is not SimpleResponsesAPIAgent.aggregate_metrics:
            return {"custom": True}
        resources_server = getattr(self.config, "resources_server", None)
        if resources_server is None:
            return {"custom": False}
        reply = await self.server_client.get(
            server_name=resources_server.name, url_path="/aggregate_metrics"
        )
        return await reply.json() if reply.ok else {"custom": True}

    def rollout_id_from_run(self, body: object) -> str | None:
        """Return the rollout id of a run request; None when it carries none."""
        return rollout_of_body(body)

    def url_path_for_run(self, url_path: str, body: object) -> str:
        """Return `url_path` under the prefix of the rollout of a run request."""
        return join_prefix(self._captured(rollout_of_body(body)), url_path)

    def url_path_for_request(self, url_path: str, request: Request) -> str:
        """Return `url_path` under the prefix that the inbound call came with."""
        return join_prefix(self._captured(rollout_of_request(request)), url_path)

    def base_url_for_run(self, base_url: str, body: object) -> str:
        """Return `base_url` with the prefix after its origin, for an SDK configured once."""
        return prefixed_base_url(base_url, self._captured(rollout_of_body(body)))

    def resolve_model_base_url(self, model_server_name: str, rollout_id: str | None = None) -> str:
        """Return the base URL of a model server, under the prefix of a rollout; ends in `/v1`."""
        known = None if rollout_id is None else parse_rollout_id(rollout_id)
        instance = self.server_client.directory.pick(model_server_name, known)
        origin = instance.origin or origin_here(model_server_name)
        if origin is None:
            raise ConnectFailed(f"{model_server_name} is in this process but listens nowhere")
        return prefixed_base_url(f"{origin}/v1", self._captured(known))

    def _captured(self, rollout_id: RolloutId | None) -> RolloutId | None:
        """Return the id where capture is on: without it nothing needs a prefix."""
        on = observability_enabled_from_config(self.server_client.global_config_dict)
        return rollout_id if on else None

    def _layers(self, app: ASGIApp) -> ASGIApp:
        return RolloutContext(with_session(app, self.config.name), strip=False)
