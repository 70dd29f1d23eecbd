"""An exception in, whose failure it is and what to say about it out. No I/O.

The class of a failure follows the server that failed: a model server's is `model_error`, a
verifier's `verifier_error`, a call that did not end in a response `connection` or `timeout`, and
everything else is the agent's own. Whoever raised from, or inside a group of, such an error is
looked through.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Literal

import orjson

from nemo_gym.capture.facts import REFUSAL_HEADER, SERVER_STOPPING
from nemo_gym.errors import CallTimeout, GymError, TransportError
from nemo_gym.transport.response import CallFailed

__all__ = [
    "REFUSAL_HEADER",
    "Failure",
    "FailureClass",
    "ModelFailed",
    "VerifierFailed",
    "call_failed_in",
    "classify",
    "failure_body",
]

FailureClass = Literal["agent_error", "verifier_error", "model_error", "timeout", "connection"]

_TYPE = "rollout_failure"
_BODY_LIMIT = 8_000
"""Characters of a provider's answer that are passed on."""


class ModelFailed(GymError):
    """A model server answered, but with no response that can be used."""

    def __init__(self, message: str, status: int, body: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = body


class VerifierFailed(GymError):
    """A verifier answered, but with no verify response."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a rollout did not end in a reward."""

    failure_class: FailureClass
    message: str
    provider_status: int | None = None
    """HTTP status of the model provider; None when no provider answered."""
    provider_body: str | None = None
    """What the provider answered, as text, cut at 8,000 characters."""

    def redacted(self, redact: Callable[[str], str]) -> "Failure":
        """Return the failure with secrets taken out of its texts."""
        body = self.provider_body
        return replace(
            self,
            message=redact(self.message),
            provider_body=None if body is None else redact(body),
        )


def failure_body(failure: Failure) -> dict[str, object]:
    """Return the JSON body of the 500 that reports `failure`."""
    return {"error": {"type": _TYPE, **asdict(failure)}}


def classify(exc: BaseException) -> Failure:
    """Return what `exc` means for the rollout in which it was raised."""
    for cause in _causes(exc):
        if isinstance(cause, CallFailed):
            return _of_call(cause)
        if isinstance(cause, ModelFailed):
            body = cause.body[:_BODY_LIMIT]
            return Failure("model_error", _text(cause), cause.status, body)
        if isinstance(cause, VerifierFailed):
            return Failure("verifier_error", _text(cause))
        if isinstance(cause, CallTimeout | TimeoutError):
            return Failure("timeout", _text(cause))
        if isinstance(cause, TransportError | ConnectionError):
            return Failure("connection", _text(cause))
    return Failure("agent_error", _text(exc))


def call_failed_in(exc: BaseException) -> CallFailed | None:
    """Return the failed call that `exc` is, came from, or holds."""
    return next((cause for cause in _causes(exc) if isinstance(cause, CallFailed)), None)


def _of_call(failed: CallFailed) -> Failure:
    passed_on = _reported(failed.body)
    if passed_on is not None:
        return passed_on
    if failed.server_kind == "responses_api_models":
        if REFUSAL_HEADER in failed.headers:
            stopped = failed.headers[REFUSAL_HEADER] == SERVER_STOPPING
            said = f"{failed.server_name}: {_message_in(failed.body)}"
            return Failure("connection" if stopped else "model_error", said)
        return Failure("model_error", _text(failed), failed.status, failed.body[:_BODY_LIMIT])
    if failed.server_kind == "resources_servers" and failed.url_path.endswith("/verify"):
        return Failure("verifier_error", _text(failed))
    return Failure("agent_error", _text(failed))


def _reported(body: str) -> Failure | None:
    """Return the failure that another server of the run has classed already."""
    try:
        error = orjson.loads(body)["error"]
        if error["type"] != _TYPE:
            return None
        return Failure(
            error["failure_class"],
            error["message"],
            error.get("provider_status"),
            error.get("provider_body"),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _message_in(body: str) -> str:
    """Return the message of an error body of any dialect; the body where it holds none."""
    try:
        message = orjson.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = None
    return (message if isinstance(message, str) else body)[:_BODY_LIMIT]


def _causes(exc: BaseException) -> Iterator[BaseException]:
    """Yield `exc`, what it holds, and what it was raised from, each once."""
    waiting, seen = [exc], set[int]()
    while waiting:
        current = waiting.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if isinstance(current, BaseExceptionGroup):
            waiting.extend(current.exceptions)
        before = current.__cause__ or (
            None if current.__suppress_context__ else current.__context__
        )
        if before is not None:
            waiting.append(before)


def _text(exc: BaseException) -> str:
    text = str(exc)
    return text if isinstance(exc, GymError) else f"{type(exc).__name__}: {text}".rstrip(": ")
