"""One model call on its way through a forwarder, as telemetry hears of it.

Head and bytes of the answer come in as they pass; duration, first chunk, tries, error and tokens go
out to the counts of the process, to metrics and to the call's span.
"""

import re

import msgspec

from nemo_gym.servers.forward_usage import TokenCounts, UsageReader, quick_counts, usage_reader
from nemo_gym.telemetry.exporting import exporting
from nemo_gym.telemetry.model_calls import ModelCall, model_call_started
from nemo_gym.telemetry.tracing import tracer
from nemo_gym.transport.base import Reply
from nemo_gym.wire.dialects import DialectName

__all__ = ["CallTiming", "timed_call"]

_HOUSES: dict[DialectName, str] = {
    "responses": "openai",
    "chat": "openai",
    "messages": "anthropic",
}
"""Whose dialect it is: the provider's name where none is configured."""
_UNKNOWN = "unknown"


class CallTiming:
    """A call under way; `with` ends it whatever happens, and only its first end counts."""

    __slots__ = ("_call", "_dialect", "_reader", "_whole")

    def __init__(self, call: ModelCall, dialect: DialectName) -> None:
        self._call = call
        self._dialect: DialectName = dialect
        self._reader: UsageReader | None = None
        self._whole: bytes | None = None
        """A JSON body that came in one piece, which takes no reader."""

    def __enter__(self) -> "CallTiming":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if not self._call.over:
            self._call.__exit__(kind, *rest)

    def retried(self, reason: str) -> None:
        """Take note of one more try; `reason` is a status or the class of an error."""
        self._call.retried(reason)

    def failed(self, category: str | None) -> None:
        """Take note that no answer came."""
        self._call.failed(category or "connection")

    def answered(self, reply: Reply, begun: bytes) -> None:
        """Take note of the answer's head, and of what has come of its body."""
        content_type, encoding = b"", None
        for name, value in reply.headers:
            if name == b"content-type":
                content_type = value
            elif name == b"content-encoding":
                encoding = value
        self._call.answered(reply.status, stream=content_type.startswith(b"text/event-stream"))
        if reply.status < 400:
            if reply.ended and encoding is None and content_type.startswith(b"application/json"):
                self._whole = begun
            else:
                self._reader = usage_reader(self._dialect, content_type, encoding)
        self.passed(begun)

    def passed(self, data: bytes) -> None:
        """Take note of further bytes of the body."""
        if data:
            if self._call.waiting:
                self._call.first_chunk()
            if self._reader is not None:
                self._reader.feed(data)

    def ended(self) -> None:
        """Take note that all of the answer has come."""
        counts = self._counts()
        if counts is not None:
            self._call.tokens(counts)
        self._call.ended()

    def _counts(self) -> TokenCounts | None:
        whole, reader = self._whole, self._reader
        if whole is not None:
            # Without metrics and traces nobody asks for more than the two sums.
            asked = exporting() is not None or tracer() is not None
            return quick_counts(whole, self._dialect, parts=asked)
        return None if reader is None else reader.counts()


def timed_call(
    dialect: DialectName, body: bytes, *, provider: str | None, model: str | None
) -> CallTiming:
    """Begin to time a call; names that are None are taken from the dialect and the body."""
    call = model_call_started(provider or _HOUSES[dialect], model or _asked_model(body))
    return CallTiming(call, dialect)


class _Asked(msgspec.Struct):
    model: str = _UNKNOWN


_ASKED = msgspec.json.Decoder(_Asked)
_MODEL_FIRST = re.compile(rb'\s*\{\s*"model"\s*:\s*"([ !#-\[\]-~]{1,200})"')


def _asked_model(body: bytes) -> str:
    """Return the model that a client asks for."""
    # Clients put it first, as a rule, and the prompt behind it may be long.
    first = _MODEL_FIRST.match(body)
    if first is not None:
        return first[1].decode("ascii")
    try:
        return _ASKED.decode(body).model
    except (msgspec.MsgspecError, RecursionError):
        return _UNKNOWN
