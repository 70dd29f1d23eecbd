"""What an agent's loop tells about itself: its turns and the tools it called, with their times."""

from dataclasses import dataclass
from typing import Any, Protocol

from nemo_gym.telemetry.work import tool_call_ended

__all__ = ["SILENT", "Recorder", "SilentRecorder", "ToolCall"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool that has ended."""

    call_id: str
    name: str
    arguments: str
    """As the model wrote them."""
    output: str
    """What the model gets to see."""
    started_at: float
    """UTC Unix seconds."""
    duration_ms: float
    error: str | None = None
    """A short category where it did not go well: `unknown_tool`, `bad_arguments`, `http_<n>`."""
    has_span: bool = False
    """Whether whoever called the tool made the span of its trace."""


class Recorder(Protocol):
    """Told of each step of one rollout as it ends; must not raise and must not wait."""

    def turn(
        self, step: int, response: dict[str, Any], started_at: float, duration_ms: float
    ) -> None:
        """Note the model's answer of turn `step` (from 0); times as in `ToolCall`."""
        ...

    def tool(self, step: int, call: ToolCall) -> None:
        """Note a tool call of turn `step`."""
        ...


class SilentRecorder:
    """Keeps nothing; counts tool calls for the live figures of the run."""

    def turn(
        self, step: int, response: dict[str, Any], started_at: float, duration_ms: float
    ) -> None:
        """Keep nothing."""

    def tool(self, step: int, call: ToolCall) -> None:
        """Count the call."""
        tool_call_ended(call.name, call.duration_ms / 1000, call.error, has_span=call.has_span)


SILENT = SilentRecorder()
