"""Responses: `POST /v1/responses`."""

from nemo_gym.wire.dialects.base import Dialect, ErrorFacts, openai_error

__all__ = ["RESPONSES"]


def _error_event(error: ErrorFacts) -> tuple[str | None, dict[str, object]]:
    return "error", {
        "type": "error",
        "code": error.code or str(error.status),
        "message": error.message,
        "param": None,
        "sequence_number": error.sequence_number,
    }


RESPONSES = Dialect(
    name="responses",
    route=b"/v1/responses",
    error_body=openai_error,
    error_event=_error_event,
)
