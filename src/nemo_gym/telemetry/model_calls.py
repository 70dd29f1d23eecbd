"""One call to a provider, timed: what a model server's forwarder tells telemetry.

Counts for the live view always run; series by model and error, and the call's span, only while
metrics or traces are exported. Nothing here raises, and no text of a request or a header comes in.
"""

from time import perf_counter
from typing import Self

from nemo_gym.ids import current_rollout_id
from nemo_gym.telemetry.ended_calls import EndedCall, Names, Tokens
from nemo_gym.telemetry.exporting import exporting
from nemo_gym.telemetry.live import counting
from nemo_gym.telemetry.recorded import OPERATION
from nemo_gym.telemetry.series import MOST_SENT
from nemo_gym.telemetry.tracing import ROLLOUT_ID, Span, begin_span, carry, tracer

__all__ = ["ModelCall", "count_tokens", "model_call_started", "names_of"]

# A model name may come from a client; a longer one is no name.
_LONGEST_NAME = 100
_STATUSES = {
    401: "auth",
    403: "auth",
    404: "not_found",
    408: "timeout",
    429: "rate_limit",
    504: "timeout",
}
_CATEGORIES = {
    "CallTimeout": "timeout",
    "CancelledError": "cancelled",
    "ConnectFailed": "connection",
    "ConnectionLost": "connection",
    "ReplyInvalid": "connection",
}
"""By the name of an exception that ends a call."""


def names_of(provider: str, model: str) -> Names:
    """Return what a call is counted under."""
    return provider, model[:_LONGEST_NAME]


class ModelCall:
    """A call under way; `with` ends it whatever happens, and only its first end counts."""

    # Every call pays for this, telemetry on or off: what mostly stays as it is, is set only where
    # it changes, and what can wait is left to `reading`.
    over = False
    """Whether it has ended."""
    waiting = False
    """Whether the first data of a stream are still to come."""
    _error: str | None = None
    _first_s: float | None = None
    _span: Span | None = None
    _tokens: Tokens | None = None
    _took_s: float | None = None

    def __init__(self, names: Names) -> None:
        self._names = names
        if tracer() is not None:
            self._span = self._begun_span()
        self.started = perf_counter()
        """When it began, by `time.perf_counter`."""
        self._live = counting()
        under_way = self._live.model_open
        under_way.add(self)
        self._company = len(under_way)
        """How many were under way at its beginning, 0 once it had to be tried again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        self.broken_off(kind)

    def broken_off(self, kind: type[BaseException] | None) -> None:
        """Say that the call is over, whatever became of it; `kind` is what was raised, if it was.

        Without effect on a call that has ended.
        """
        if not self.over:
            self.ended(None if kind is None else _reason_category(kind.__name__))

    def carry(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Have the headers of the call to the provider name its span, while traces are on."""
        carry(headers, self._span)

    def answered(self, status: int, *, stream: bool) -> None:
        """Say that the response's head has come; an error status is the call's error."""
        self.waiting = stream
        self._error = None if status < 400 else _category(status)
        if self._span is not None:
            self._span.set("http.response.status_code", status)
            self._span.set("gen_ai.request.stream", stream)

    def first_chunk(self) -> None:
        """Say that data of the response has come; only the first time of a stream counts."""
        if not self.waiting:
            return
        self.waiting = False
        self._first_s = perf_counter() - self.started
        if self._span is not None:
            self._span.set("gen_ai.response.time_to_first_chunk", self._first_s)

    def retried(self, reason: str) -> None:
        """Count one more try; `reason` is a status such as `429` or the class of an error."""
        self._company = 0
        live = counting()
        live.model_retries += 1
        category = _reason_category(reason)
        live.model_failures[category] += 1
        active = exporting()
        if active is not None:
            active.recorded.model_retries.add(1, *self._names, category)

    def tokens(self, tokens: Tokens) -> None:
        """Take what the provider says the call used, once a call, before its end."""
        self._tokens = tokens
        if self._span is not None:
            tokens_in, tokens_out = tokens[0], tokens[1]
            if tokens_in is not None:
                self._span.set("gen_ai.usage.input_tokens", min(tokens_in, MOST_SENT))
            if tokens_out is not None:
                self._span.set("gen_ai.usage.output_tokens", min(tokens_out, MOST_SENT))

    def ended(self, error: str | None = None) -> None:
        """Say that the call is over; `error` is its category (`timeout`, `rate_limit`, …)."""
        if self.over:
            return
        self.over = True
        self._took_s = perf_counter() - self.started
        if error is not None and self._error is None:
            self._error = error
        live = self._live
        live.model_open.discard(self)
        live.ended_calls.record(self)
        if self._span is not None:
            self._span.end(self._error)

    def used(self) -> Tokens | None:
        """Return what the provider says the call used, after its end."""
        return self._tokens

    def reading(self) -> EndedCall:
        """Return what the call leaves, after its end."""
        return self._names, self._took_s, self._first_s, self._error, self.used(), self._company

    def _begun_span(self) -> Span | None:
        provider, model = self._names
        attributes = {
            "gen_ai.operation.name": OPERATION,
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
        }
        rollout_id = current_rollout_id()
        if rollout_id is not None:
            attributes[ROLLOUT_ID] = attributes["gen_ai.conversation.id"] = rollout_id
        return begin_span(f"{OPERATION} {model}", kind="client", attributes=attributes)


def _category(status: int) -> str:
    """Return the category of an HTTP status of 400 and above, as capture has it."""
    return _STATUSES.get(status, "client_error" if status < 500 else "upstream_error")


def _reason_category(reason: str) -> str:
    """Return the category of a status, or of the name of an exception's class."""
    if reason.isdecimal():
        return _category(int(reason))
    return _CATEGORIES.get(reason, "exception")


def model_call_started(provider: str, model: str, *, stream: bool = False) -> ModelCall:
    """Begin timing a call; `provider` is a GenAI provider name such as `openai` or `anthropic`.

    Whether it streams may be told later, by `answered`.
    """
    call = ModelCall(names_of(provider, model))
    call.waiting = stream
    return call


def count_tokens(
    provider: str,
    model: str,
    *,
    tokens_in: int | None,
    tokens_out: int | None,
    cache_read: int | None = None,
    cache_creation: int | None = None,
    reasoning: int | None = None,
) -> None:
    """Count the tokens of one call, once a call, by whoever has read its usage; None: not known.

    Cached and reasoning tokens are parts of the input and the output, not added to them.
    """
    tokens = (tokens_in, tokens_out, cache_read, cache_creation, reasoning)
    names = names_of(provider, model)
    counting().ended_calls.record((names, None, None, None, tokens, 1))
