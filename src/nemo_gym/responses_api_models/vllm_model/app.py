"""A model server in front of vLLM, which speaks Chat, Responses and Messages itself."""

from typing import ClassVar

from pydantic import Field

from nemo_gym.servers.forward_server import ForwardingModel
from nemo_gym.servers.provider import BaseURL, Key, Provider, ProviderConfig
from nemo_gym.wire.dialects import DialectName

__all__ = ["VLLMModel", "VLLMModelConfig"]


class VLLMModelConfig(ProviderConfig):
    """Settings of a `vllm_model`."""

    base_url: BaseURL | list[BaseURL]
    """URL of the server, with or without `/v1`; several are replicas."""
    api_key: str | None = Field(default=None, repr=False)
    """What `vllm serve --api-key` was given. None: what clients send is passed on."""
    model: str | None = None
    """Name set in every call, as served (`--served-model-name`); None: the one clients send."""


class VLLMModel(ForwardingModel):
    """Forwards Chat Completions, Responses and Messages."""

    SERVED_DIALECTS: ClassVar[tuple[DialectName, ...]] = ("chat", "responses", "messages")

    config: VLLMModelConfig

    def provider(self) -> Provider:
        """Return the provider of the settings."""
        config = self.config
        return config.provider(
            config.base_url,
            self.SERVED_DIALECTS,
            model=config.model,
            key=Key.bearer(config.api_key),
            name="vllm",
        )


if __name__ == "__main__":
    VLLMModel.run_webserver()
