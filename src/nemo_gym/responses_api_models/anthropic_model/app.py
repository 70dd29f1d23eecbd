"""A model server in front of Anthropic, or of any provider that speaks Messages."""

from typing import ClassVar

from pydantic import Field

from nemo_gym.servers.forward_server import ForwardingModel
from nemo_gym.servers.provider import BaseURL, Key, Provider, ProviderConfig
from nemo_gym.wire.dialects import DialectName

__all__ = ["AnthropicModel", "AnthropicModelConfig"]


class AnthropicModelConfig(ProviderConfig):
    """Settings of an `anthropic_model`."""

    anthropic_base_url: BaseURL | list[BaseURL]
    """URL of the provider, with or without `/v1`; several are replicas."""
    anthropic_api_key: str | None = Field(default=None, repr=False)
    """Sent as `x-api-key`. None: the credentials that clients send are passed on."""
    anthropic_model: str | None = None
    """Name set in every call; None: the one that clients send."""


class AnthropicModel(ForwardingModel):
    """Forwards Messages and `count_tokens`."""

    SERVED_DIALECTS: ClassVar[tuple[DialectName, ...]] = ("messages",)

    config: AnthropicModelConfig

    def provider(self) -> Provider:
        """Return the provider of the settings."""
        config = self.config
        return config.provider(
            config.anthropic_base_url,
            self.SERVED_DIALECTS,
            model=config.anthropic_model,
            key=Key.x_api_key(config.anthropic_api_key),
        )


if __name__ == "__main__":
    AnthropicModel.run_webserver()
