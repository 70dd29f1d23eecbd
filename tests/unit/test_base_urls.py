"""Base URLs of providers: those that end in a route are refused, in the source and by pydantic."""

from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from nemo_gym.config.load import ConfigRequest, check_run_config
from nemo_gym.responses_api_models.anthropic_model.app import AnthropicModelConfig
from nemo_gym.responses_api_models.openai_model.app import OpenAIModelConfig
from nemo_gym.responses_api_models.vllm_model.app import VLLMModelConfig
from nemo_gym.servers.provider import ProviderConfig
from nemo_gym.wire.dialects import CHAT, MESSAGES, RESPONSES

ROUTES = [dialect.route.decode() for dialect in (RESPONSES, CHAT, MESSAGES)]
MODEL_TYPES: dict[str, tuple[type[ProviderConfig], str]] = {
    "openai_model": (OpenAIModelConfig, "openai_base_url"),
    "anthropic_model": (AnthropicModelConfig, "anthropic_base_url"),
    "vllm_model": (VLLMModelConfig, "base_url"),
}
WITH_ROUTE = [
    *(f"http://127.0.0.1:9{route}" for route in ROUTES),
    *(f"https://h/proxy{route}/" for route in ROUTES),
    "https://h/v1/completions",
    "https://h/v1/chat/completions?api-version=2",
]
WITHOUT = [
    "http://127.0.0.1:9",
    "http://127.0.0.1:9/v1/",
    "https://messages",
    "https://h/responses/v1",
    "https://h/v1?next=/v1/messages",
    "https://h/openai/deployments/chat",
    " HTTPS://h/models ",
]


def _mistakes(folder: Path, model_type: str, url: str) -> list[str]:
    request = ConfigRequest(
        model_types=(model_type,), model="m", model_url=url, model_api_key="k", working_dir=folder
    )
    return [str(mistake) for mistake in check_run_config(request)]


def _is_taken(model_type: str, url: str) -> bool:
    config, name = MODEL_TYPES[model_type]
    given = {"name": "policy_model", "entrypoint": "app.py", "host": "h", "port": 1, name: url}
    try:
        TypeAdapter(config).validate_python(given)
    except ValidationError as error:
        return name not in {each["loc"][0] for each in error.errors()}
    return True


@pytest.mark.parametrize("model_type", MODEL_TYPES)
@pytest.mark.parametrize("url", WITH_ROUTE)
def test_a_base_url_that_ends_in_a_route_is_refused_with_the_mend(
    tmp_path: Path, model_type: str, url: str
) -> None:
    (mistake,) = _mistakes(tmp_path, model_type, url)

    assert "without a route (/responses, /chat/completions, /messages) at its end" in mistake
    assert "where: --model-url (policy_base_url)" in mistake
    assert "mend:  give policy_base_url" in mistake
    assert not _is_taken(model_type, url)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
@pytest.mark.parametrize("url", WITHOUT)
def test_a_base_url_without_one_is_taken(tmp_path: Path, model_type: str, url: str) -> None:
    assert _mistakes(tmp_path, model_type, url) == []
    assert _is_taken(model_type, url)
