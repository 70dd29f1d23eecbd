"""A small client for providers that speak the OpenAI dialects: keyword arguments in, a dict out."""

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nemo_gym.transport.retry import RetryRule, retry_after_s

if TYPE_CHECKING:
    from nemo_gym.transport.response import ServerResponse

__all__ = ["NeMoGymAsyncOpenAI"]


@dataclass(slots=True)
class NeMoGymAsyncOpenAI:
    """Sends create requests to one provider over pooled connections.

    Answers by which a provider says "later" are tried again within the bounds of `retry`, no sooner
    than it asks. Errors are `CallFailed`, with the provider's status and text, or `TransportError`.
    """

    base_url: str
    """With or without `/v1` at its end."""
    api_key: str | None = field(default=None, repr=False)
    timeout: float | None = 600.0
    """Longest silence of the provider, in seconds; None bears any."""
    retry: RetryRule = field(default_factory=RetryRule)

    async def create_response(self, **kwargs: Any) -> dict[str, Any]:
        """Return the response to a Responses create request."""
        return await self._create("/responses", kwargs)

    async def create_chat_completion(self, **kwargs: Any) -> dict[str, Any]:
        """Return the completion of a Chat Completions create request."""
        return await self._create("/chat/completions", kwargs)

    async def _create(self, route: str, body: dict[str, Any]) -> dict[str, Any]:
        base = self.base_url.rstrip("/")
        url = f"{base}{route}" if base.endswith("/v1") else f"{base}/v1{route}"
        reply = await self._answer(url, body)
        reply.raise_for_status()
        answer = await reply.json()
        if not isinstance(answer, dict):
            raise ValueError(f"{url} answered {type(answer).__name__}, not an object")  # noqa: TRY004 - what came, not what was given
        return answer

    async def _answer(self, url: str, body: dict[str, Any]) -> "ServerResponse":
        # Only here: importing the schemas must not import an HTTP client.
        from nemo_gym.transport.server_client import request  # noqa: PLC0415

        headers = {} if self.api_key is None else {"authorization": f"Bearer {self.api_key}"}
        began, tries = time.monotonic(), 0
        while True:
            reply = await request("POST", url, json=body, headers=headers, timeout=self.timeout)
            tries += 1
            if not self.retry.retries(reply.status):
                return reply
            raw = [(n.lower().encode(), v.encode("latin-1")) for n, v in reply.headers.items()]
            wait_s = self.retry.wait_s(
                tries=tries,
                elapsed_s=time.monotonic() - began,
                jitter=random.random(),  # noqa: S311 - spreads callers, guards nothing
                asked_s=retry_after_s(raw, time.time()),
            )
            if wait_s is None:
                return reply
            await asyncio.sleep(wait_s)
