"""One stored exchange in, one `ModelCallRecord` out: what evaluation engineers read of a call."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from nemo_gym.records.exchange import Exchange
from nemo_gym.records.refs import ModelServerRef
from nemo_gym.wire.content import tool_calls_and_reasoning
from nemo_gym.wire.json import as_object, is_array, text_of
from nemo_gym.wire.usage import cache_signal, token_stats, usage_of

__all__ = ["PAYLOAD_FIELDS", "ModelCallRecord", "build"]

PAYLOAD_FIELDS = frozenset({"request", "response", "request_raw", "response_raw"})
"""Fields that hold what was sent and received, as opposed to what is said about it."""


class ModelCallRecord(BaseModel):
    """Observability record derived from one captured model-server exchange.

    None means that a value is not known; it is never zero.
    """

    model_config = ConfigDict(protected_namespaces=())

    model_call_id: str | None = None
    """Made by the model server, unique."""
    response_id: str | None = None
    """The response object's own id, as the client saw it."""
    call_index: int
    """Place among the rollout's rows, from 0. Says nothing of the order of concurrent calls."""
    model_ref: ModelServerRef | None = None
    """The model server that was called."""
    model: str | None = None
    """The model that answered; the one asked for where the answer does not say."""
    dialect: str | None = None
    """`responses`, `chat` or `messages`: the client's."""
    status_code: int | None = None
    """HTTP status that the client got; None when no response began."""
    response_status: str | None = None
    """`completed`, `incomplete`, `failed` or `cancelled`; as given where the response says it."""
    finish_reason: str | None = None
    """Why the model stopped, in the dialect's words; None when it did not say."""
    tokens_in: int | None = None
    """Size of the prompt, cached parts included."""
    tokens_out: int | None = None
    tokens_reasoning: int | None = None
    """Part of `tokens_out`."""
    tokens_total: int | None = None
    cache_hit: bool | None = None
    """Whether part of the prompt came from a cache."""
    cached_tokens: int | None = None
    """Part of `tokens_in` that came from a cache."""
    cache_creation_tokens: int | None = None
    """Part of `tokens_in` that was written to a cache."""
    latency_total_ms: float | None = None
    """From receipt of the request to the end of the response."""
    latency_ttft_ms: float | None = None
    """From receipt of the request to the first body bytes that carry data."""
    started_at: float | None = None
    """UTC Unix seconds at which the request was received."""
    completed_at: float | None = None
    """UTC Unix seconds at which the response ended."""
    error_category: str | None = None
    """What went wrong, as one word; None when nothing did."""
    response_source: Literal["upstream", "local"] | None = None
    """Who made the response: the provider, or the model server itself."""
    upstream_attempted: bool | None = None
    """Whether the provider was called."""
    upstream_status_code: int | None = None
    """The provider's last HTTP status."""
    local_response_reason: str | None = None
    """Why the model server answered by itself."""
    client_session_id: str | None
    """The client's own id of its session, as it sent it in a header."""
    client_assistant_message_id: str | None
    """The client's own id of the message that it asked for."""
    tool_calls: list[dict[str, Any]] = Field(  # pyright: ignore[reportUnknownVariableType]
        default_factory=list
    )
    """`{"call_id", "name", "arguments"}` of each; arguments that are no object, and where
    they are attached to a rollout those too deep for its row: `{"_raw": …}`."""
    reasoning_content: str | None = None
    """Summaries, reasoning text or thinking blocks, joined by newlines."""
    request: dict[str, Any] | None = None
    """The request's JSON object."""
    response: dict[str, Any] | None = None
    """The response's JSON object, assembled where it was streamed."""
    request_raw: str | None = None
    """The request's text where it is not a JSON object."""
    response_raw: str | None = None
    """The response's text where it is not a JSON object, and that of every stream."""


def build(exchange: Mapping[str, object], call_index: int) -> ModelCallRecord:
    """Return the record of one stored exchange, at `call_index` of its rollout."""
    stored = Exchange.of(exchange)
    response = stored.response or {}
    usage = usage_of(response)
    tokens = token_stats(usage, stored.dialect)
    cache_hit, cached = cache_signal(usage)
    tool_calls, reasoning = tool_calls_and_reasoning(response)
    return ModelCallRecord(
        model_call_id=stored.model_call_id,
        response_id=text_of(response.get("id")),
        call_index=call_index,
        model_ref=stored.model_ref,
        model=text_of(response.get("model")) or text_of((stored.request or {}).get("model")),
        dialect=stored.dialect,
        status_code=stored.status_code,
        response_status=_response_status(stored, response),
        finish_reason=_finish_reason(response),
        **tokens._asdict(),
        cache_hit=cache_hit,
        cached_tokens=cached,
        latency_total_ms=stored.latency_ms,
        latency_ttft_ms=stored.latency_ttft_ms,
        started_at=stored.started_at,
        completed_at=stored.completed_at,
        error_category=stored.error_category,
        response_source=stored.response_source,
        upstream_attempted=stored.upstream_attempted,
        upstream_status_code=stored.upstream_status_code,
        local_response_reason=stored.local_response_reason,
        client_session_id=stored.client_session_id,
        client_assistant_message_id=stored.client_assistant_message_id,
        tool_calls=[_as_sent(call, stored.notes) for call in tool_calls],
        reasoning_content=reasoning,
        request=stored.request,
        response=stored.response,
        request_raw=stored.request_raw,
        response_raw=stored.response_raw,
    )


_STATUS_OF_CATEGORY = {
    None: "completed",
    "cancelled": "cancelled",
    "incomplete": "incomplete",
    "stream_truncated": "incomplete",
}
_UNSETTLED = frozenset({"queued", "in_progress"})


def _response_status(stored: Exchange, response: dict[str, object]) -> str | None:
    """Return the status that a Responses object gives itself, else what the call came to.

    A stream that broke off leaves a response that says `in_progress` for ever: there the call
    decides.
    """
    given = text_of(response.get("status"))
    settled = given not in _UNSETTLED or stored.error_category is None
    if stored.dialect == "responses" and given is not None and settled:
        return given
    return _STATUS_OF_CATEGORY.get(stored.error_category, "failed")


def _finish_reason(response: dict[str, object]) -> str | None:
    choices = response.get("choices")
    first = as_object(choices[0]) if is_array(choices) and choices else None
    details = as_object(response.get("incomplete_details")) or {}
    return (
        text_of((first or {}).get("finish_reason"))
        or text_of(response.get("stop_reason"))
        or text_of(details.get("reason"))
    )


def _as_sent(call: dict[str, object], notes: Mapping[str, object]) -> dict[str, object]:
    """Give a call whose arguments were cut off their text back, not what could be made of it."""
    cut = as_object(notes.get("tool_arguments_incomplete")) or {}
    call_id = call["call_id"]
    text = cut.get(call_id) if isinstance(call_id, str) else None
    return call if text is None else {**call, "arguments": {"_raw": text}}
