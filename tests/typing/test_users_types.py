"""What type checkers infer for code that uses the front doors; mypy checks this file.

A `type: ignore` here is an assertion as well: one that is not needed is an error.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_type

from fastapi import FastAPI

from nemo_gym.base_resources_server import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.base_responses_api_model import CaptureStore, read_model_call_records
from nemo_gym.config_types import ModelServerRef
from nemo_gym.observability.model_calls import (
    ModelCallRecord,
    aggregate_model_call_records,
    read_available_model_call_records,
)
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseUsage, accumulate_response_usage
from nemo_gym.rollout_collection import (
    PreparedRun,
    RunReport,
    RunRequest,
    collect_run,
    prepare_run,
)
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status
from nemo_gym.transport.response import ServerResponse


class _Config(BaseResourcesServerConfig):
    level: int = 3
    judge: ModelServerRef | None = None


class _Server(SimpleResourcesServer):
    config: _Config

    def setup_webserver(self) -> FastAPI:
        return assert_type(super().setup_webserver(), FastAPI)

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        assert_type(self.config.level, int)
        assert_type(body.response, NeMoGymResponse)
        assert_type(body.response.output_text, str)
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


async def _of_a_server(server: _Server, request: AggregateMetricsRequest) -> None:
    assert_type(server.server_client, ServerClient)
    assert_type(await server.aggregate_metrics(request), AggregateMetrics)


async def _of_a_call(client: ServerClient) -> None:
    reply = assert_type(await client.post(server_name="x", url_path="/verify"), ServerResponse)
    raise_for_status(reply)
    assert_type(reply.status, int)
    assert_type(reply.ok, bool)
    assert_type(await reply.read(), bytes)
    assert_type(await get_response_json(reply), Any)
    await client.post(server_nam="x", url_path="/verify")  # type: ignore[call-arg]


def _of_captures(store: CaptureStore) -> None:
    calls = assert_type(read_model_call_records(store, "0-0"), list[ModelCallRecord])
    assert_type(calls[0].tokens_in, int | None)
    assert_type(read_available_model_call_records(store, "0-0"), tuple[list[ModelCallRecord], int])
    assert_type(aggregate_model_call_records(calls), dict[str, Any])


async def _of_a_run(client: ServerClient, tree: Mapping[str, object]) -> None:
    run = assert_type(prepare_run(RunRequest((Path("in"),), Path("out")), tree), PreparedRun)
    report = assert_type(await collect_run(run, client), RunReport)
    assert_type(report.exit_code, int)
    assert_type(report.failed, Mapping[str, int])
    prepare_run(RunRequest("in", Path("out")), tree)  # type: ignore[arg-type]


def _of_usage(one: NeMoGymResponseUsage, other: NeMoGymResponseUsage) -> None:
    assert_type(accumulate_response_usage(one, other), NeMoGymResponseUsage | None)


def test_a_server_of_a_user_is_what_its_types_say() -> None:
    config = _Config(name="x", judge=ModelServerRef(type="responses_api_models", name="m"))

    assert config.level == 3
    assert isinstance(config.judge, ModelServerRef)
