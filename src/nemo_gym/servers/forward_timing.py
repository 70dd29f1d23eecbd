"""One model call on its way through a forwarder, as telemetry hears of it.

Head and bytes of the answer come in as they pass; duration, first chunk, tries, error and tokens go
out to the counts of the process, to metrics and to the call's span.
"""

import re

import msgspec

from nemo_gym.servers.forward_usage import UsageReader, quick_counts, usage_reader
from nemo_gym.telemetry.ended_calls import Names, Tokens
from nemo_gym.telemetry.exporting import exporting
from nemo_gym.telemetry.model_calls import ModelCall, names_of
from nemo_gym.transport.base import Reply
from nemo_gym.wire.dialects import DialectName

__all__ = ["CallTiming", "call_names", "timed_call"]

_HOUSES: dict[DialectName, str] = {
    "responses": "openai",
    "chat": "openai",
    "messages": "anthropic",
}
"""Whose dialect it is: the provider's name where none is configured."""
_UNKNOWN = "unknown"
_KEPT = 8192
"""Bytes of an answer that wait to be looked into together with others; a process keeps 2 MB so."""


class CallTiming(ModelCall):
    """A call under way; `with` ends it whatever happens, and only its first end counts."""

    dialect: DialectName
    """Of request and answer; set as it begins."""
    _reader: UsageReader | None = None
    _whole: bytes | None = None
    """A JSON body that came in one piece, which takes no reader."""

    def asks(self, body: bytes) -> None:
        """Take note of what the provider is asked, for the span where there is one."""
        if self._span is not None:
            for name, value in _parameters(body):
                self._span.set(name, value)

    def answered_by(self, reply: Reply, begun: bytes) -> None:
        """Take note of the answer's head, and of what has come of its body."""
        status = reply.status
        if status < 400 and reply.ended and begun.startswith(b"{"):
            # Neither a stream nor compressed, whatever the head says, and all of it.
            self._all_came(status, begun)
            return
        content_type, encoding = b"", None
        for name, value in reply.headers:
            if name == b"content-type":
                content_type = value
            elif name == b"content-encoding":
                encoding = value
        self.answered(status, stream=content_type.startswith(b"text/event-stream"))
        if status < 400:
            self._reader = usage_reader(self.dialect, content_type, encoding)
        self.passed(begun)

    def passed(self, data: bytes) -> None:
        """Take note of further bytes of the body."""
        if data:
            if self.waiting:
                self._span_of_answer(data)
                self.first_chunk()
            if self._reader is not None:
                self._reader.feed(data)

    def all_passed(self) -> None:
        """Take note that all of the answer has come."""
        reader, self._reader = self._reader, None
        used = None if reader is None else reader.counts()
        if used is not None:
            self.tokens(used)
        self.ended()

    def _all_came(self, status: int, body: bytes) -> None:
        """Take note of a whole answer in JSON."""
        self._whole = body
        # A small one is looked into later, together with others; what a span says is said now.
        if self._span is not None or len(body) > _KEPT:
            self.answered(status, stream=False)
            self._span_of_answer(body)
            used, self._whole = self.used(), None
            if used is not None:
                self.tokens(used)
        self.ended()

    def _span_of_answer(self, data: bytes) -> None:
        """Say on the span, where there is one, which model the provider says has answered."""
        told = None if self._span is None else _MODEL_TOLD.search(data)
        if told is not None and self._span is not None:
            self._span.set("gen_ai.response.model", told[1].decode("ascii"))

    def used(self) -> Tokens | None:
        """Return what the answer says the call used."""
        if self._whole is None:
            return self._tokens
        # Without metrics nobody asks for more than the two sums.
        return quick_counts(self._whole, self.dialect, parts=exporting() is not None)

    def broken_off(self, kind: type[BaseException] | None) -> None:
        """Say that the call is over, whatever became of it."""
        self._reader = None  # what it keeps may be large, and is not asked for
        super().broken_off(kind)


def timed_call(dialect: DialectName, names: Names) -> CallTiming:
    """Begin to time a call."""
    call = CallTiming(names)
    call.dialect = dialect
    return call


def call_names(dialect: DialectName, body: bytes, provider: str | None, model: str | None) -> Names:
    """Return what a call is counted under; names that are None come from dialect and body."""
    return names_of(provider or _HOUSES[dialect], model or _asked_model(body))


class _Asked(msgspec.Struct):
    model: str = _UNKNOWN


class _Parameters(msgspec.Struct):
    """What the GenAI conventions have attributes for, under the names of the three dialects."""

    temperature: object = None
    top_p: object = None
    max_tokens: object = None
    max_output_tokens: object = None
    max_completion_tokens: object = None


_PARAMETERS = msgspec.json.Decoder(_Parameters)
_MODEL_TOLD = re.compile(rb'"model"\s*:\s*"([ !#-\[\]-~]{1,200})"')
"""In JSON, or in the first event of a stream; never within a text, where quotes are escaped."""


def _parameters(body: bytes) -> list[tuple[str, float]]:
    """Return the attributes of a span that are known from a request's body."""
    try:
        asked = _PARAMETERS.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return []
    limits = (asked.max_output_tokens, asked.max_completion_tokens, asked.max_tokens)
    found = {
        "gen_ai.request.temperature": asked.temperature,
        "gen_ai.request.top_p": asked.top_p,
        "gen_ai.request.max_tokens": next((limit for limit in limits if limit is not None), None),
    }
    return [
        (name, value)
        for name, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]


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
