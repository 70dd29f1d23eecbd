"""A model server in front of OpenAI, or of any provider that speaks Responses and Chat."""

from typing import ClassVar

from pydantic import Field

from nemo_gym.servers.forward_server import ForwardingModel
from nemo_gym.servers.provider import BaseURL, Key, Provider, ProviderConfig
from nemo_gym.wire.dialects import DialectName

__all__ = ["OpenAIModel", "OpenAIModelConfig"]


class OpenAIModelConfig(ProviderConfig):
    """Settings of an `openai_model`."""

    openai_base_url: BaseURL | list[BaseURL]
    """URL of the provider, with or without `/v1`; several are replicas."""
    openai_api_key: str | None = Field(default=None, repr=False)
    """None: the credentials that clients send are passed on."""
    openai_model: str | None = None
    """Name set in every call; None: the one that clients send."""


class OpenAIModel(ForwardingModel):
    """Forwards Responses and Chat Completions."""

    SERVED_DIALECTS: ClassVar[tuple[DialectName, ...]] = ("responses", "chat")

    config: OpenAIModelConfig

    def provider(self) -> Provider:
        """Return the provider of the settings."""
        config = self.config
        return config.provider(
            config.openai_base_url,
            self.SERVED_DIALECTS,
            model=config.openai_model,
            key=Key.bearer(config.openai_api_key),
        )


if __name__ == "__main__":
    OpenAIModel.run_webserver()
