"""Models of the Responses API: create requests, responses and the items of both."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag

from nemo_gym.servers.openai_schema import (
    FIRST_FITTING,
    AnyItem,
    Flag,
    Lenient,
    Number,
    OpenAISchema,
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
    content: Lenient[str | list[AnyItem] | None] = None
    type: Lenient[Literal["message"] | None] = None


class NeMoGymMessage(OpenAISchema):
    """An input message whose content is a list of parts (`input_text`, `input_image`, …)."""

    role: str
    content: list[AnyItem] | str
    type: Literal["message"] = "message"
    status: Lenient[str | None] = None


class NeMoGymResponseOutputText(OpenAISchema):
    """Text of the model."""

    text: str
    type: Literal["output_text"] = "output_text"
    annotations: Lenient[list[AnyItem] | None] = None
    logprobs: Lenient[list[AnyItem] | None] = None


class NeMoGymResponseOutputRefusal(OpenAISchema):
    """The model's words for declining."""

    refusal: str
    type: Literal["refusal"] = "refusal"


OutputPart = Annotated[
    Annotated[NeMoGymResponseOutputText | AnyItem, FIRST_FITTING, Tag("output_text")]
    | Annotated[NeMoGymResponseOutputRefusal | AnyItem, FIRST_FITTING, Tag("refusal")]
    | Annotated[AnyItem, Tag("any")],
    Discriminator(tag_of("output_text", "refusal")),
]


class NeMoGymResponseOutputMessage(OpenAISchema):
    """A message of the model."""

    content: list[OutputPart]
    id: Lenient[str | None] = None
    role: Literal["assistant"] = "assistant"
    status: Lenient[str | None] = None
    type: Literal["message"] = "message"


class NeMoGymResponseFunctionToolCall(OpenAISchema):
    """A call of a function that the model asks for; `arguments` is JSON as text."""

    call_id: str
    name: str
    arguments: str
    type: Literal["function_call"] = "function_call"
    id: Lenient[str | None] = None
    status: Lenient[str | None] = None


class NeMoGymFunctionCallOutput(OpenAISchema):
    """What a called function answered."""

    call_id: str
    output: str | list[AnyItem]
    type: Literal["function_call_output"] = "function_call_output"
    id: Lenient[str | None] = None
    status: Lenient[str | None] = None


class NeMoGymSummary(OpenAISchema):
    """One paragraph of a reasoning summary."""

    text: str
    type: Literal["summary_text"] = "summary_text"


SummaryPart = Annotated[
    Annotated[NeMoGymSummary | AnyItem, FIRST_FITTING, Tag("summary_text")]
    | Annotated[AnyItem, Tag("any")],
    Discriminator(tag_of("summary_text")),
]


class NeMoGymResponseReasoningItem(OpenAISchema):
    """Reasoning of the model: summaries, its text where the server shows it, or its cipher."""

    id: Lenient[str | None] = None
    summary: Lenient[list[SummaryPart] | None] = None
    type: Literal["reasoning"] = "reasoning"
    content: Lenient[list[AnyItem] | None] = None
    encrypted_content: Lenient[str | None] = None
    status: Lenient[str | None] = None


def _input_tag(value: object) -> str:
    """Tell apart what shares the type `message`: our classes by class, the wire by role."""
    if isinstance(value, NeMoGymEasyInputMessage):
        return "easy"
    if isinstance(value, NeMoGymMessage):
        return "message"
    if field_of(value, "type") is None:
        return "easy" if isinstance(field_of(value, "role"), str) else "any"
    tag = _by_type(value)
    if tag != "message":
        return tag
    return "output_message" if field_of(value, "role") == "assistant" else "message"


def _output_tag(value: object) -> str:
    """Take for a message of the model only one whose role is the assistant's."""
    tag = _by_type(value)
    return "any" if tag == "message" and field_of(value, "role") != "assistant" else tag


_by_type = tag_of("message", "function_call", "function_call_output", "reasoning")

NeMoGymResponseInputItem = Annotated[
    Annotated[NeMoGymEasyInputMessage | AnyItem, FIRST_FITTING, Tag("easy")]
    | Annotated[NeMoGymMessage | AnyItem, FIRST_FITTING, Tag("message")]
    | Annotated[
        NeMoGymResponseOutputMessage | NeMoGymMessage | AnyItem,
        FIRST_FITTING,
        Tag("output_message"),
    ]
    | Annotated[NeMoGymResponseFunctionToolCall | AnyItem, FIRST_FITTING, Tag("function_call")]
    | Annotated[NeMoGymFunctionCallOutput | AnyItem, FIRST_FITTING, Tag("function_call_output")]
    | Annotated[NeMoGymResponseReasoningItem | AnyItem, FIRST_FITTING, Tag("reasoning")]
    | Annotated[AnyItem, Tag("any")],
    Discriminator(_input_tag),
]

NeMoGymResponseOutputItem = Annotated[
    Annotated[NeMoGymResponseOutputMessage | AnyItem, FIRST_FITTING, Tag("message")]
    | Annotated[NeMoGymResponseFunctionToolCall | AnyItem, FIRST_FITTING, Tag("function_call")]
    | Annotated[NeMoGymFunctionCallOutput | AnyItem, FIRST_FITTING, Tag("function_call_output")]
    | Annotated[NeMoGymResponseReasoningItem | AnyItem, FIRST_FITTING, Tag("reasoning")]
    | Annotated[AnyItem, Tag("any")],
    Discriminator(_output_tag),
]


class NeMoGymFunctionToolParam(OpenAISchema):
    """A function that the model may call."""

    name: str
    parameters: Lenient[dict[str, Any] | None] = None
    strict: Lenient[Flag | None] = None
    type: Literal["function"] = "function"
    description: Lenient[str | None] = None


ToolParam = Annotated[
    Annotated[NeMoGymFunctionToolParam | AnyItem, FIRST_FITTING, Tag("function")]
    | Annotated[AnyItem, Tag("any")],
    Discriminator(tag_of("function")),
]


class NeMoGymResponseInputTokensDetails(OpenAISchema):
    """Where input tokens came from."""

    cached_tokens: Lenient[Number | None] = None


class NeMoGymResponseOutputTokensDetails(OpenAISchema):
    """What output tokens were spent on."""

    reasoning_tokens: Lenient[Number | None] = None


class NeMoGymResponseUsage(OpenAISchema):
    """Tokens of one call; None where the server does not say."""

    input_tokens: Lenient[Number | None] = None
    output_tokens: Lenient[Number | None] = None
    total_tokens: Lenient[Number | None] = None
    input_tokens_details: Lenient[NeMoGymResponseInputTokensDetails | None] = None
    output_tokens_details: Lenient[NeMoGymResponseOutputTokensDetails | None] = None


class NeMoGymResponseCreateParamsNonStreaming(OpenAISchema):
    """A create request. `input` is text or a list of items."""

    input: str | list[NeMoGymResponseInputItem]
    model: Lenient[str | None] = None
    instructions: Lenient[str | list[AnyItem] | None] = None
    tools: Lenient[list[ToolParam] | None] = None
    tool_choice: AnyItem = None
    parallel_tool_calls: Lenient[Flag | None] = None
    temperature: Lenient[Number | None] = None
    top_p: Lenient[Number | None] = None
    max_output_tokens: Lenient[Number | None] = None
    max_tool_calls: Lenient[Number | None] = None
    previous_response_id: Lenient[str | None] = None
    reasoning: AnyItem = None
    text: AnyItem = None
    metadata: Lenient[dict[str, Any] | None] = None
    include: Lenient[list[str] | None] = None
    store: Lenient[Flag | None] = None
    stream: Lenient[Flag | None] = None
    truncation: Lenient[str | None] = None
    user: Lenient[str | None] = None


class NeMoGymResponse(OpenAISchema):
    """A response of the model, or the whole conversation of a rollout in that shape."""

    output: list[NeMoGymResponseOutputItem]
    id: Lenient[str | None] = None
    created_at: Lenient[Number | None] = None
    model: Lenient[str | None] = None
    object: Lenient[Literal["response"] | None] = None
    status: Lenient[str | None] = None
    error: AnyItem = None
    incomplete_details: AnyItem = None
    instructions: Lenient[str | list[AnyItem] | None] = None
    metadata: Lenient[dict[str, Any] | None] = None
    parallel_tool_calls: Lenient[Flag | None] = None
    tool_choice: AnyItem = None
    tools: Lenient[list[ToolParam] | None] = None
    temperature: Lenient[Number | None] = None
    top_p: Lenient[Number | None] = None
    max_output_tokens: Lenient[Number | None] = None
    previous_response_id: Lenient[str | None] = None
    reasoning: AnyItem = None
    text: AnyItem = None
    truncation: Lenient[str | None] = None
    usage: Lenient[NeMoGymResponseUsage | None] = None
    user: Lenient[str | None] = None

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
