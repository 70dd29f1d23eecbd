"""The base of a resources server: per-rollout state, tools and the verifier."""

from abc import abstractmethod
from enum import StrEnum
from typing import Any, ClassVar

from fastapi import FastAPI
from starlette.types import ASGIApp

from nemo_gym.records.refs import ServerKind
from nemo_gym.servers.answers import redactor_of
from nemo_gym.servers.context import RolloutContext
from nemo_gym.servers.instance import BaseRunServerInstanceConfig
from nemo_gym.servers.metrics import agent_metrics, by_task, default_key_metrics, group_metrics
from nemo_gym.servers.run_types import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
)
from nemo_gym.servers.session import with_session
from nemo_gym.servers.simple_server import SimpleServer
from nemo_gym.servers.stack import new_app

__all__ = ["BaseResourcesServerConfig", "ReverifyMode", "SimpleResourcesServer"]


class ReverifyMode(StrEnum):
    """Whether finished rollouts can be verified again without running them again."""

    STATELESS = "stateless"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"


class BaseResourcesServerConfig(BaseRunServerInstanceConfig):
    """Settings of a resources server; environments add fields of their own."""

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNKNOWN


class SimpleResourcesServer(SimpleServer):
    """State of rollouts in fields, tools as routes, and `verify`.

    Override `verify`; `seed_session` where a rollout needs state; `setup_webserver` to add a route
    for each tool; `compute_metrics` and `get_key_metrics` for metrics of your own.
    """

    KIND: ClassVar[ServerKind | None] = "resources_servers"

    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        """Return the app with `/seed_session`, `/verify` and `/aggregate_metrics`."""
        redactor = redactor_of(self)

        def answer(_path: str, exc: BaseException) -> tuple[int, object]:
            message = redactor.redact(f"{type(exc).__name__}: {exc}")
            return 500, {"error": {"type": "resources_server_error", "message": message}}

        app = new_app(self.config.name, self._layers, answer)
        # `Any` sends the class that was returned, not the one that was annotated.
        app.post("/seed_session", response_model=Any)(self.seed_session)
        app.post("/verify", response_model=Any)(self.verify)
        app.post("/aggregate_metrics", response_model=Any)(self.aggregate_metrics)
        app.get("/aggregate_metrics")(self.has_own_metrics)
        return app

    async def seed_session(self, body: BaseSeedSessionRequest) -> BaseSeedSessionResponse:
        """Prepare the state of one rollout; the default needs none."""
        return BaseSeedSessionResponse()

    @abstractmethod
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        """Return the request with its reward."""

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """Return the metrics of one agent's verify responses."""
        tasks = by_task(body.verify_responses)
        metrics = {**agent_metrics(tasks), **self.compute_metrics(tasks)}
        return AggregateMetrics(
            group_level_metrics=group_metrics(tasks),
            agent_metrics=metrics,
            key_metrics=self.get_key_metrics(metrics),
        )

    async def has_own_metrics(self) -> dict[str, bool]:
        """Say whether this environment's metrics are other than the default ones."""
        names = ("aggregate_metrics", "compute_metrics", "get_key_metrics")
        base = SimpleResourcesServer
        own = any(getattr(type(self), name) is not getattr(base, name) for name in names)
        return {"custom": own}

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        """Return further metrics over the verify responses of each task; they replace defaults."""
        return {}

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        """Return the metrics that belong in a table."""
        return default_key_metrics(agent_metrics)

    def _layers(self, app: ASGIApp) -> ASGIApp:
        return RolloutContext(with_session(app, self.config.name), strip=True)
