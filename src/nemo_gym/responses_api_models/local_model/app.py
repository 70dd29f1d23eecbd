"""A model server whose provider is a process of its own: llama.cpp with a model on this machine."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any, ClassVar

from fastapi import FastAPI
from pydantic import Field

from nemo_gym.responses_api_models.local_model.llama import Llama, LlamaSettings
from nemo_gym.responses_api_models.local_model.transport import LlamaTransport
from nemo_gym.responses_api_models.local_model.weights import check_runtime, find_weights
from nemo_gym.servers.forward import Forwarder
from nemo_gym.servers.forward_server import ForwardingModel
from nemo_gym.servers.provider import Provider, ProviderConfig
from nemo_gym.wire.dialects import DialectName

__all__ = ["LocalModel", "LocalModelConfig"]

# llama.cpp gives each kept connection a thread: more connections than threads would starve.
_THREADS_BESIDE_CONNECTIONS = 2


class LocalModelConfig(ProviderConfig):
    """Settings of a `local_model`."""

    model: str | None = None
    """Path to a GGUF file; None, or `smollm2-135m-instruct`: the small model from PyPI."""
    alias: str | None = None
    """Name the model is served under; None: made from the file's name, never its path."""
    context_size: int = Field(default=4096, ge=0)
    """Tokens of one request, prompt and answer together; 0: what the model was trained with."""
    parallel: int = Field(default=2, ge=1)
    """Requests worked on at the same time; each has `context_size` tokens. Others wait."""
    threads: int | None = Field(default=None, ge=1)
    """CPU threads; None: all cores of this process but one, and one at least."""
    gpu_layers: int = Field(default=-1, ge=-1)
    """Layers put on a GPU, where xllamacpp was built for one; -1: as many as fit."""
    poll: int = Field(default=0, ge=0, le=100)
    """How eagerly idle threads wait for work; higher is faster on an otherwise idle machine."""
    log_verbosity: int = Field(default=1, ge=0, le=5)
    """Of llama.cpp's log: 1 errors, 2 warnings, 3 information, more for debugging."""
    start_timeout_s: float = Field(default=300.0, gt=0)
    """Until the model must have loaded, in seconds."""
    max_tries: int = Field(default=3, ge=1)
    """Tries of one call. There is no network between that could fail for a while."""
    max_connections: int = Field(default=16, ge=1)
    """Connections to llama.cpp; calls beyond wait here, in order."""


class LocalModel(ForwardingModel):
    """Forwards Responses, Chat Completions and Messages to a llama.cpp server that it runs."""

    SERVED_DIALECTS: ClassVar[tuple[DialectName, ...]] = ("responses", "chat", "messages")

    config: LocalModelConfig

    @cached_property
    def llama(self) -> Llama:
        """The model's process; raises `ConfigMistake` where it could not be started anyway."""
        config = self.config
        check_runtime()
        weights = find_weights(config.model, config.alias)
        settings = LlamaSettings(
            path=str(weights.path),
            alias=weights.alias,
            context_size=config.context_size,
            slots=config.parallel,
            threads=config.threads or max(1, _usable_cores() - 1),
            http_threads=config.max_connections + _THREADS_BESIDE_CONNECTIONS,
            gpu_layers=config.gpu_layers,
            poll=config.poll,
            verbosity=config.log_verbosity,
        )
        return Llama(settings, start_timeout_s=config.start_timeout_s)

    @cached_property
    def forwarder(self) -> Forwarder:
        """The one forwarder of this server."""
        provider = self.provider()
        return Forwarder(provider, transports=[LlamaTransport(self.llama, provider.limits)])

    def provider(self) -> Provider:
        """Return the provider; where it listens is known once it runs."""
        return self.config.provider(
            "http://127.0.0.1",
            self.SERVED_DIALECTS,
            model=self.llama.settings.alias,
            key=None,
            name="llama.cpp",
        )

    def setup_webserver(self) -> FastAPI:
        """Return the app, which loads the model as it starts and ends its process as it stops."""
        app = super().setup_webserver()
        inner = app.router.lifespan_context

        @asynccontextmanager
        async def with_model(served: FastAPI) -> AsyncGenerator[Any]:
            try:
                await self.llama.origin()
                async with inner(served) as state:
                    yield state
            finally:
                await self.llama.stop()

        app.router.lifespan_context = with_model
        return app

    async def provider_problem(self) -> None:
        """Find nothing wrong: the model has loaded by the time this is asked."""


def _usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


if __name__ == "__main__":
    LocalModel.run_webserver()
