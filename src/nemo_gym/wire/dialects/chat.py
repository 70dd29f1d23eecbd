"""Chat Completions: `POST /v1/chat/completions`."""

from nemo_gym.wire.dialects.base import Dialect, ErrorFacts, openai_error

__all__ = ["CHAT"]


def _error_event(error: ErrorFacts) -> tuple[str | None, dict[str, object]]:
    return None, openai_error(error)


CHAT = Dialect(
    name="chat",
    route=b"/v1/chat/completions",
    error_body=openai_error,
    error_event=_error_event,
)
