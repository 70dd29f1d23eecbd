"""Model servers in front of the provider double, on a socket, as users run them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from nemo_gym.responses_api_models.anthropic_model.app import AnthropicModel, AnthropicModelConfig
from nemo_gym.responses_api_models.openai_model.app import OpenAIModel, OpenAIModelConfig
from nemo_gym.responses_api_models.vllm_model.app import VLLMModel, VLLMModelConfig
from nemo_gym.servers.forward_server import ForwardingModel
from nemo_gym.servers.serve import AppServer, bind_socket
from nemo_gym.transport.directory import Directory
from nemo_gym.transport.server_client import ServerClient

__all__ = ["KEY", "ServedModel", "model_in_front_of", "serve_model"]

KEY = "sk-the-servers-own-key"
_CLASSES: dict[str, tuple[type[ForwardingModel], Any, str]] = {
    "openai_model": (OpenAIModel, OpenAIModelConfig, "openai_"),
    "anthropic_model": (AnthropicModel, AnthropicModelConfig, "anthropic_"),
    "vllm_model": (VLLMModel, VLLMModelConfig, ""),
}


@dataclass(frozen=True, slots=True)
class ServedModel:
    origin: str
    model: ForwardingModel


def model_in_front_of(
    url: str | list[str], model_type: str = "vllm_model", **settings: Any
) -> ForwardingModel:
    """Return a model server; settings without prefix (`model`, `api_key`) get the type's own."""
    server_class, config_class, prefix = _CLASSES[model_type]
    own = {f"{prefix}base_url": url, f"{prefix}api_key": KEY, f"{prefix}model": "configured"}
    own |= {(f"{prefix}{k}" if k in ("api_key", "model") else k): v for k, v in settings.items()}
    config = config_class(name="policy_model", **own)
    return server_class(config=config, server_client=ServerClient(Directory(), {}))


@asynccontextmanager
async def serve_model(
    url: str | list[str], model_type: str = "vllm_model", *, bare: bool = False, **settings: Any
) -> AsyncGenerator[ServedModel]:
    """Serve a model server; `bare`: its forwarder alone, without the stack."""
    model = model_in_front_of(url, model_type, **settings)
    sock = bind_socket("127.0.0.1", 0)
    server = AppServer(model.forwarder if bare else model.setup_webserver(), sock, "policy_model")
    await server.start()
    try:
        yield ServedModel(f"http://127.0.0.1:{sock.getsockname()[1]}", model)
    finally:
        await server.stop(0.05)
        await model.forwarder.aclose()
