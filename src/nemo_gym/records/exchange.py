"""One stored line as a value: what was kept of a call, each field of its type or None.

A line is read by many versions of this program and may have been written by another, so a field of
a wrong type counts as not known instead of making the whole line useless.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from nemo_gym.records.refs import ModelServerRef
from nemo_gym.wire.json import as_object, is_count, text_of

__all__ = ["Exchange", "ResponseSource"]

ResponseSource = Literal["upstream", "local"]

_SOURCES: dict[str, ResponseSource] = {"upstream": "upstream", "local": "local"}


@dataclass(frozen=True, slots=True)
class Exchange:
    """One captured call, as stored. Field names are those of the line."""

    model_call_id: str | None
    dialect: str | None
    model_ref: ModelServerRef | None
    started_at: float | None
    completed_at: float | None
    latency_ms: float | None
    latency_ttft_ms: float | None
    status_code: int | None
    error_category: str | None
    request: dict[str, object] | None
    response: dict[str, object] | None
    request_raw: str | None
    response_raw: str | None
    response_source: ResponseSource | None
    upstream_attempted: bool | None
    upstream_status_code: int | None
    local_response_reason: str | None
    client_session_id: str | None
    client_assistant_message_id: str | None
    notes: dict[str, object]

    @classmethod
    def of(cls, line: Mapping[str, object]) -> "Exchange":
        """Return the exchange that a decoded line holds."""
        attempted, source = line.get("upstream_attempted"), line.get("response_source")
        return cls(
            model_call_id=text_of(line.get("model_call_id")),
            dialect=text_of(line.get("dialect")),
            model_ref=_model_ref(line.get("model_ref")),
            started_at=_number(line.get("started_at")),
            completed_at=_number(line.get("completed_at")),
            latency_ms=_number(line.get("latency_ms")),
            latency_ttft_ms=_number(line.get("latency_ttft_ms")),
            status_code=_count(line.get("status_code")),
            error_category=text_of(line.get("error_category")),
            request=as_object(line.get("request")),
            response=as_object(line.get("response")),
            request_raw=text_of(line.get("request_raw")),
            response_raw=text_of(line.get("response_raw")),
            response_source=_SOURCES.get(source) if isinstance(source, str) else None,
            upstream_attempted=attempted if isinstance(attempted, bool) else None,
            upstream_status_code=_count(line.get("upstream_status_code")),
            local_response_reason=text_of(line.get("local_response_reason")),
            client_session_id=text_of(line.get("client_session_id")),
            client_assistant_message_id=text_of(line.get("client_assistant_message_id")),
            notes=as_object(line.get("notes")) or {},
        )


def _model_ref(value: object) -> ModelServerRef | None:
    try:
        return ModelServerRef.model_validate(value)
    except ValidationError:
        return None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # JSON has no largest number, floats have
        return None


def _count(value: object) -> int | None:
    return value if is_count(value) else None
