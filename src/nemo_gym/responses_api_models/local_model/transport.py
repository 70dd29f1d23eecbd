"""The way to a llama.cpp server that may have to be started first."""

from dataclasses import replace

from nemo_gym.errors import ConfigMistake, ConnectFailed, ServerDied
from nemo_gym.responses_api_models.local_model.accepted import understood
from nemo_gym.responses_api_models.local_model.llama import Llama
from nemo_gym.transport.base import Call, Reply
from nemo_gym.transport.http import HttpTransport, Limits

__all__ = ["LlamaTransport"]


class LlamaTransport:
    """A `Transport` to the model's process, wherever it listens after its last start."""

    def __init__(self, llama: Llama, limits: Limits) -> None:
        self._llama = llama
        self._limits = limits
        self._way: HttpTransport | None = None

    async def send(self, call: Call) -> Reply:
        """Send `call`; raises `ConnectFailed` when the model cannot be started."""
        try:
            origin = await self._llama.origin()
        except (ConfigMistake, ServerDied) as problem:
            raise ConnectFailed(str(problem)) from problem
        if call.body and call.target.partition("?")[0] == "/v1/responses":
            call = replace(call, body=understood(call.body))
        return await self._to(origin).send(call)

    async def aclose(self) -> None:
        """Close the connections; the process goes on."""
        way, self._way = self._way, None
        if way is not None:
            await way.aclose()

    def _to(self, origin: str) -> HttpTransport:
        if self._way is None or self._way.address.origin != origin:
            # The connections of the one before ended with their process.
            self._way = HttpTransport(origin, limits=self._limits)
        return self._way
