"""Models of the Responses API: create requests, responses and the items of both."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag

from nemo_gym.servers.openai_schema import (
    FIRST_FITTING,
    Flag,
    Number,
    OpenAISchema,
    UnknownItem,
    field_of,
    tag_of,
)

__all__ = [
    "NeMoGymEasyInputMessage",
    "NeMoGymFunctionCallOutput",
    "NeMoGymFunctionToolParam",
    "NeMoGymMessage",
    "NeMoGymResponse",
    "NeMoGymResponseCreateParamsNonStreaming",
    "NeMoGymResponseFunctionToolCall",
    "NeMoGymResponseInputItem",
    "NeMoGymResponseInputTokensDetails",
    "NeMoGymResponseOutputItem",
    "NeMoGymResponseOutputMessage",
    "NeMoGymResponseOutputRefusal",
    "NeMoGymResponseOutputText",
    "NeMoGymResponseOutputTokensDetails",
    "NeMoGymResponseReasoningItem",
    "NeMoGymResponseUsage",
    "NeMoGymSummary",
]


class NeMoGymEasyInputMessage(OpenAISchema):
    """A message by role and text, as people write them; without `type` on the wire as a rule."""

    role: str
    content: str | list[UnknownItem] | None = None
    type: Literal["message"] | None = None


class NeMoGymMessage(OpenAISchema):
    """An input message whose content is a list of parts (`input_text`, `input_image`, …)."""

    role: str
    content: list[UnknownItem] | str
    type: Literal["message"] = "message"
    status: str | None = None


class NeMoGymResponseOutputText(OpenAISchema):
    """Text of the model."""

    text: str
    type: Literal["output_text"] = "output_text"
    annotations: list[UnknownItem] | None = None
    logprobs: list[UnknownItem] | None = None


class NeMoGymResponseOutputRefusal(OpenAISchema):
    """The model's words for declining."""

    refusal: str
    type: Literal["refusal"] = "refusal"


OutputPart = Annotated[
    Annotated[NeMoGymResponseOutputText | UnknownItem, FIRST_FITTING, Tag("output_text")]
    | Annotated[NeMoGymResponseOutputRefusal | UnknownItem, FIRST_FITTING, Tag("refusal")]
    | Annotated[UnknownItem, Tag("any")],
    Discriminator(tag_of("output_text", "refusal")),
]


class NeMoGymResponseOutputMessage(OpenAISchema):
    """A message of the model."""

    content: list[OutputPart]
    id: str | None = None
    role: Literal["assistant"] = "assistant"
    status: str | None = None
    type: Literal["message"] = "message"


class NeMoGymResponseFunctionToolCall(OpenAISchema):
    """A call of a function that the model asks for; `arguments` is JSON as text."""

    call_id: str
    name: str
    arguments: str
    type: Literal["function_call"] = "function_call"
    id: str | None = None
    status: str | None = None


class NeMoGymFunctionCallOutput(OpenAISchema):
    """What a called function answered."""

    call_id: str
    output: str | list[UnknownItem]
    type: Literal["function_call_output"] = "function_call_output"
    id: str | None = None
    status: str | None = None


class NeMoGymSummary(OpenAISchema):
    """One paragraph of a reasoning summary."""

    text: str
    type: Literal["summary_text"] = "summary_text"


class NeMoGymResponseReasoningItem(OpenAISchema):
    """Reasoning of the model: summaries, its text where the server shows it, or its cipher."""

    id: str | None = None
    summary: list[NeMoGymSummary | UnknownItem] | None = None
    type: Literal["reasoning"] = "reasoning"
    content: list[UnknownItem] | None = None
    encrypted_content: str | None = None
    status: str | None = None


def _message_tag(value: object) -> str:
    role = field_of(value, "role")
    return "easy" if isinstance(role, str) else "any"


def _input_tag(value: object) -> str:
    """Tell apart what shares the type `message`: our classes by class, the wire by role."""
    if isinstance(value, NeMoGymEasyInputMessage):
        return "easy"
    if isinstance(value, NeMoGymMessage):
        return "message"
    tag = _by_type(value)
    if tag != "message":
        return tag
    role = field_of(value, "role")
    return "output_message" if role == "assistant" else "message"


_by_type = tag_of(
    "message", "function_call", "function_call_output", "reasoning", untyped=_message_tag
)

NeMoGymResponseInputItem = Annotated[
    Annotated[NeMoGymEasyInputMessage | UnknownItem, FIRST_FITTING, Tag("easy")]
    | Annotated[NeMoGymMessage | UnknownItem, FIRST_FITTING, Tag("message")]
    | Annotated[
        NeMoGymResponseOutputMessage | NeMoGymMessage | UnknownItem,
        FIRST_FITTING,
        Tag("output_message"),
    ]
    | Annotated[NeMoGymResponseFunctionToolCall | UnknownItem, FIRST_FITTING, Tag("function_call")]
    | Annotated[NeMoGymFunctionCallOutput | UnknownItem, FIRST_FITTING, Tag("function_call_output")]
    | Annotated[NeMoGymResponseReasoningItem | UnknownItem, FIRST_FITTING, Tag("reasoning")]
    | Annotated[UnknownItem, Tag("any")],
    Discriminator(_input_tag),
]

NeMoGymResponseOutputItem = Annotated[
    Annotated[NeMoGymResponseOutputMessage | UnknownItem, FIRST_FITTING, Tag("message")]
    | Annotated[NeMoGymResponseFunctionToolCall | UnknownItem, FIRST_FITTING, Tag("function_call")]
    | Annotated[NeMoGymFunctionCallOutput | UnknownItem, FIRST_FITTING, Tag("function_call_output")]
    | Annotated[NeMoGymResponseReasoningItem | UnknownItem, FIRST_FITTING, Tag("reasoning")]
    | Annotated[UnknownItem, Tag("any")],
    Discriminator(tag_of("message", "function_call", "function_call_output", "reasoning")),
]


class NeMoGymFunctionToolParam(OpenAISchema):
    """A function that the model may call."""

    name: str
    parameters: dict[str, Any] | None = None
    strict: Flag | None = None
    type: Literal["function"] = "function"
    description: str | None = None


ToolParam = Annotated[
    Annotated[NeMoGymFunctionToolParam | UnknownItem, FIRST_FITTING, Tag("function")]
    | Annotated[UnknownItem, Tag("any")],
    Discriminator(tag_of("function")),
]


class NeMoGymResponseInputTokensDetails(OpenAISchema):
    """Where input tokens came from."""

    cached_tokens: Number | None = None


class NeMoGymResponseOutputTokensDetails(OpenAISchema):
    """What output tokens were spent on."""

    reasoning_tokens: Number | None = None


class NeMoGymResponseUsage(OpenAISchema):
    """Tokens of one call; None where the server does not say."""

    input_tokens: Number | None = None
    output_tokens: Number | None = None
    total_tokens: Number | None = None
    input_tokens_details: NeMoGymResponseInputTokensDetails | None = None
    output_tokens_details: NeMoGymResponseOutputTokensDetails | None = None


class NeMoGymResponseCreateParamsNonStreaming(OpenAISchema):
    """A create request. `input` is text or a list of items."""

    input: str | list[NeMoGymResponseInputItem]
    model: str | None = None
    instructions: str | list[UnknownItem] | None = None
    tools: list[ToolParam] | None = None
    tool_choice: str | UnknownItem | None = None
    parallel_tool_calls: Flag | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    max_output_tokens: Number | None = None
    max_tool_calls: Number | None = None
    previous_response_id: str | None = None
    reasoning: UnknownItem | None = None
    text: UnknownItem | None = None
    metadata: dict[str, Any] | None = None
    include: list[str] | None = None
    store: Flag | None = None
    stream: Flag | None = None
    truncation: str | None = None
    user: str | None = None


class NeMoGymResponse(OpenAISchema):
    """A response of the model, or the whole conversation of a rollout in that shape."""

    output: list[NeMoGymResponseOutputItem]
    id: str | None = None
    created_at: Number | None = None
    model: str | None = None
    object: Literal["response"] | None = None
    status: str | None = None
    error: UnknownItem | None = None
    incomplete_details: UnknownItem | None = None
    instructions: str | list[UnknownItem] | None = None
    metadata: dict[str, Any] | None = None
    parallel_tool_calls: Flag | None = None
    tool_choice: str | UnknownItem | None = None
    tools: list[ToolParam] | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    max_output_tokens: Number | None = None
    previous_response_id: str | None = None
    reasoning: UnknownItem | None = None
    text: UnknownItem | None = None
    truncation: str | None = None
    usage: NeMoGymResponseUsage | None = None
    user: str | None = None

    @property
    def output_text(self) -> str:
        """All text of the model's messages, joined."""
        return "".join(
            part.text
            for item in self.output
            if isinstance(item, NeMoGymResponseOutputMessage)
            for part in item.content
            if isinstance(part, NeMoGymResponseOutputText)
        )
