"""Models of the Chat Completions API."""

from typing import Any, Literal

from pydantic import Field

from nemo_gym.servers.openai_schema import AnyItem, Flag, Lenient, Number, OpenAISchema

__all__ = [
    "NeMoGymChatCompletion",
    "NeMoGymChatCompletionCreateParamsNonStreaming",
    "NeMoGymChatCompletionMessage",
    "NeMoGymChatCompletionUsage",
    "NeMoGymChoice",
]


class NeMoGymChatCompletionMessage(OpenAISchema):
    """The message of one choice. `tool_calls` are dicts that answer to attributes."""

    role: Lenient[str | None] = None
    content: Lenient[str | list[AnyItem] | None] = None
    refusal: Lenient[str | None] = None
    tool_calls: Lenient[list[AnyItem] | None] = None
    reasoning_content: Lenient[str | None] = None


class NeMoGymChoice(OpenAISchema):
    """One of the n answers."""

    # Azure leaves it out of a choice that its filter took back; elsewhere it is always there.
    message: Lenient[NeMoGymChatCompletionMessage] = Field(default=None)  # type: ignore[assignment]
    index: Lenient[Number | None] = None
    finish_reason: Lenient[str | None] = None
    logprobs: AnyItem = None


class NeMoGymChatCompletionUsage(OpenAISchema):
    """Tokens of one call; None where the server does not say."""

    prompt_tokens: Lenient[Number | None] = None
    completion_tokens: Lenient[Number | None] = None
    total_tokens: Lenient[Number | None] = None
    prompt_tokens_details: AnyItem = None
    completion_tokens_details: AnyItem = None


class NeMoGymChatCompletion(OpenAISchema):
    """A completion of the model."""

    choices: list[NeMoGymChoice]
    id: Lenient[str | None] = None
    created: Lenient[Number | None] = None
    model: Lenient[str | None] = None
    object: Lenient[Literal["chat.completion"] | None] = None
    usage: Lenient[NeMoGymChatCompletionUsage | None] = None
    system_fingerprint: Lenient[str | None] = None
    service_tier: Lenient[str | None] = None


class NeMoGymChatCompletionCreateParamsNonStreaming(OpenAISchema):
    """A create request; messages and tools are kept as they are."""

    messages: list[AnyItem]
    model: Lenient[str | None] = None
    tools: Lenient[list[AnyItem] | None] = None
    tool_choice: AnyItem = None
    parallel_tool_calls: Lenient[Flag | None] = None
    temperature: Lenient[Number | None] = None
    top_p: Lenient[Number | None] = None
    n: Lenient[Number | None] = None
    max_tokens: Lenient[Number | None] = None
    max_completion_tokens: Lenient[Number | None] = None
    stop: Lenient[str | list[str] | None] = None
    seed: Lenient[Number | None] = None
    logprobs: Lenient[Flag | None] = None
    top_logprobs: Lenient[Number | None] = None
    response_format: AnyItem = None
    metadata: Lenient[dict[str, Any] | None] = None
    stream: Lenient[Flag | None] = None
    stream_options: AnyItem = None
    user: Lenient[str | None] = None
