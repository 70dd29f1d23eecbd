"""Models of the Chat Completions API."""

from typing import Any, Literal

from nemo_gym.servers.openai_schema import Flag, Number, OpenAISchema, UnknownItem

__all__ = [
    "NeMoGymChatCompletion",
    "NeMoGymChatCompletionCreateParamsNonStreaming",
    "NeMoGymChatCompletionMessage",
    "NeMoGymChatCompletionUsage",
    "NeMoGymChoice",
]


class NeMoGymChatCompletionMessage(OpenAISchema):
    """The message of one choice. `tool_calls` are dicts that answer to attributes."""

    role: str = "assistant"
    content: str | list[UnknownItem] | None = None
    refusal: str | None = None
    tool_calls: list[UnknownItem] | None = None
    reasoning_content: str | None = None


class NeMoGymChoice(OpenAISchema):
    """One of the n answers."""

    message: NeMoGymChatCompletionMessage
    index: int | None = None
    finish_reason: str | None = None
    logprobs: UnknownItem | None = None


class NeMoGymChatCompletionUsage(OpenAISchema):
    """Tokens of one call; None where the server does not say."""

    prompt_tokens: Number | None = None
    completion_tokens: Number | None = None
    total_tokens: Number | None = None
    prompt_tokens_details: UnknownItem | None = None
    completion_tokens_details: UnknownItem | None = None


class NeMoGymChatCompletion(OpenAISchema):
    """A completion of the model."""

    choices: list[NeMoGymChoice]
    id: str | None = None
    created: Number | None = None
    model: str | None = None
    object: Literal["chat.completion"] | None = None
    usage: NeMoGymChatCompletionUsage | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None


class NeMoGymChatCompletionCreateParamsNonStreaming(OpenAISchema):
    """A create request; messages and tools are kept as they are."""

    messages: list[UnknownItem]
    model: str | None = None
    tools: list[UnknownItem] | None = None
    tool_choice: str | UnknownItem | None = None
    parallel_tool_calls: Flag | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    n: Number | None = None
    max_tokens: Number | None = None
    max_completion_tokens: Number | None = None
    stop: str | list[str] | None = None
    seed: Number | None = None
    logprobs: Flag | None = None
    top_logprobs: Number | None = None
    response_format: UnknownItem | None = None
    metadata: dict[str, Any] | None = None
    stream: Flag | None = None
    stream_options: UnknownItem | None = None
    user: str | None = None
