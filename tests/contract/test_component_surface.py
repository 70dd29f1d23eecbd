"""Every name that components import from the front doors: there, and of the documented shape."""

import importlib
import inspect
import subprocess
import sys
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import BaseModel

NAMES = {
    "base_resources_server": """
        BaseResourcesServerConfig BaseRunRequest BaseVerifyRequest BaseVerifyResponse
        BaseMultiRewardVerifyResponse BaseSeedSessionRequest BaseSeedSessionResponse
        AggregateMetricsRequest AggregateMetrics SimpleResourcesServer ReverifyMode""",
    "base_responses_api_agent": "BaseResponsesAPIAgentConfig Body SimpleResponsesAPIAgent",
    "base_responses_api_model": """
        BaseResponsesAPIModelConfig Body SimpleResponsesAPIModel CaptureStore
        aggregate_model_call_metrics read_model_call_records""",
    "openai_utils": """
        NeMoGymResponse NeMoGymResponseCreateParamsNonStreaming NeMoGymEasyInputMessage
        NeMoGymMessage NeMoGymResponseOutputMessage NeMoGymResponseOutputText
        NeMoGymResponseFunctionToolCall NeMoGymFunctionCallOutput NeMoGymResponseReasoningItem
        NeMoGymSummary NeMoGymResponseUsage NeMoGymResponseInputTokensDetails
        NeMoGymResponseOutputTokensDetails NeMoGymResponseInputItem NeMoGymResponseOutputItem
        NeMoGymChatCompletion NeMoGymChatCompletionCreateParamsNonStreaming
        NeMoGymChatCompletionMessage NeMoGymChoice NeMoGymFunctionToolParam
        accumulate_response_usage NeMoGymAsyncOpenAI""",
    "server_utils": """
        ServerClient raise_for_status get_response_json request SESSION_ID_KEY
        is_nemo_gym_fastapi_entrypoint BaseRunServerInstanceConfig SimpleServer BaseServer""",
    "config_types": """
        ModelServerRef ResourcesServerRef AgentServerRef AggregateMetrics
        AggregateMetricsRequest ROLLOUT_PATH_PREFIX""",
}

FIELDS: list[tuple[str, str, set[str]]] = [
    ("base_resources_server", "BaseRunRequest", {"responses_create_params"}),
    ("base_resources_server", "BaseVerifyRequest", {"responses_create_params", "response"}),
    ("base_resources_server", "BaseVerifyResponse", {"reward", "response"}),
    ("base_resources_server", "BaseMultiRewardVerifyResponse", {"reward_components"}),
    ("base_resources_server", "AggregateMetricsRequest", {"verify_responses"}),
    (
        "base_resources_server",
        "AggregateMetrics",
        {"group_level_metrics", "agent_metrics", "key_metrics"},
    ),
    ("base_resources_server", "SimpleResourcesServer", {"config", "server_client"}),
    ("server_utils", "BaseRunServerInstanceConfig", {"name", "host", "port", "entrypoint"}),
    ("config_types", "ModelServerRef", {"type", "name"}),
]

METHODS: list[tuple[str, str, str, list[str]]] = [
    ("base_resources_server", "SimpleResourcesServer", "setup_webserver", []),
    ("base_resources_server", "SimpleResourcesServer", "seed_session", ["body"]),
    ("base_resources_server", "SimpleResourcesServer", "verify", ["body"]),
    ("base_resources_server", "SimpleResourcesServer", "aggregate_metrics", ["body"]),
    ("base_resources_server", "SimpleResourcesServer", "compute_metrics", ["tasks"]),
    ("base_resources_server", "SimpleResourcesServer", "get_key_metrics", ["agent_metrics"]),
    ("base_responses_api_agent", "SimpleResponsesAPIAgent", "aggregate_metrics", ["body"]),
    ("base_responses_api_agent", "SimpleResponsesAPIAgent", "rollout_id_from_run", ["body"]),
    (
        "base_responses_api_agent",
        "SimpleResponsesAPIAgent",
        "url_path_for_run",
        ["url_path", "body"],
    ),
    (
        "base_responses_api_agent",
        "SimpleResponsesAPIAgent",
        "url_path_for_request",
        ["url_path", "request"],
    ),
    (
        "base_responses_api_agent",
        "SimpleResponsesAPIAgent",
        "base_url_for_run",
        ["base_url", "body"],
    ),
    (
        "base_responses_api_agent",
        "SimpleResponsesAPIAgent",
        "resolve_model_base_url",
        ["model_server_name", "rollout_id"],
    ),
    ("openai_utils", "NeMoGymAsyncOpenAI", "create_response", ["kwargs"]),
    ("openai_utils", "NeMoGymAsyncOpenAI", "create_chat_completion", ["kwargs"]),
]

ABSTRACT = [
    ("base_resources_server", "SimpleResourcesServer", {"verify"}),
    ("base_responses_api_agent", "SimpleResponsesAPIAgent", {"responses", "run"}),
    ("base_responses_api_model", "SimpleResponsesAPIModel", {"responses", "chat_completions"}),
]


def _front_door(module: str) -> Any:
    return importlib.import_module(f"nemo_gym.{module}")


@pytest.mark.parametrize(
    ("module", "name"), [(m, name) for m, names in NAMES.items() for name in names.split()]
)
def test_the_name_is_at_its_documented_place(module: str, name: str) -> None:
    front_door = _front_door(module)

    assert hasattr(front_door, name)
    assert name in front_door.__all__


@pytest.mark.parametrize(("module", "name", "fields"), FIELDS)
def test_the_model_has_its_documented_fields(module: str, name: str, fields: set[str]) -> None:
    model: type[BaseModel] = getattr(_front_door(module), name)

    assert fields <= set(model.model_fields)


@pytest.mark.parametrize(("module", "name", "method", "parameters"), METHODS)
def test_the_method_takes_its_documented_parameters(
    module: str, name: str, method: str, parameters: list[str]
) -> None:
    function = getattr(getattr(_front_door(module), name), method)

    assert list(inspect.signature(function).parameters)[1:] == parameters


@pytest.mark.parametrize(("module", "name", "methods"), ABSTRACT)
def test_what_is_abstract_is_what_a_component_must_write(
    module: str, name: str, methods: set[str]
) -> None:
    cls = getattr(_front_door(module), name)

    assert set(cls.__abstractmethods__) == methods
    assert inspect.signature(cls.setup_webserver).return_annotation is FastAPI
    assert callable(cls.run_webserver)


def test_the_modes_of_verifying_again_are_the_documented_ones() -> None:
    door = _front_door("base_resources_server")

    assert {mode.value for mode in door.ReverifyMode} == {"stateless", "unsupported", "unknown"}
    assert door.BaseResourcesServerConfig.REVERIFY_MODE is door.ReverifyMode.UNKNOWN


def test_references_say_their_kind_and_the_prefix_is_the_documented_one() -> None:
    door = _front_door("config_types")

    assert door.ROLLOUT_PATH_PREFIX == "ng-rollout"
    assert [ref(name="x").type for ref in (door.ModelServerRef, door.ResourcesServerRef)] == [
        "responses_api_models",
        "resources_servers",
    ]
    assert door.AgentServerRef(name="x").type == "responses_api_agents"
    assert _front_door("server_utils").SESSION_ID_KEY == "session_id"


def test_the_schemas_import_neither_openai_nor_an_http_client() -> None:
    script = (
        "import sys, nemo_gym.openai_utils; "
        "print([m for m in ('openai', 'httptools', 'httpx', 'aiohttp', 'uvicorn', "
        "'nemo_gym.transport.http', 'nemo_gym.transport.server_client') if m in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "[]"
