"""What a dialect is: its name, its route, how its streams are read, how it reports an error.

Adding a dialect is one module with one `Dialect` value, and one entry in `dialects.DIALECTS`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, NamedTuple

from nemo_gym.wire.dialects.merge import TextPieces
from nemo_gym.wire.json import JsonError, is_object, loads, loads_object
from nemo_gym.wire.sse import Event

__all__ = [
    "Assembled",
    "Assembler",
    "Dialect",
    "DialectName",
    "ErrorFacts",
    "Growing",
    "StreamState",
    "is_error",
    "kind_of",
    "openai_error",
]

DialectName = Literal["responses", "chat", "messages"]

_KEEPALIVES = frozenset({"ping", "keepalive", "response.keepalive"})


class StreamState(Enum):
    """How far a stream is, seen by a client that reads it line by line."""

    OPEN = "open"
    """More is expected."""
    ENDING = "ending"
    """A line of the event that ends the stream has come, its payload has not."""
    FAILING = "failing"
    """An error has come whole, on which official clients stop; a terminal event may follow."""
    ENDED = "ended"
    """A client has all it waits for: the terminal event, or an error event."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """What a stream amounts to."""

    response: dict[str, object] | None
    """The response object, as the dialect would have sent it without streaming; partial when the
    stream broke off, with the error under `error` where one came. None when nothing came."""
    terminal: str | None
    """The dialect's terminal event that was seen; None: the stream was cut or ended in an error."""
    error: object = None
    """The error that an event inside the stream reported, as given."""
    notes: dict[str, object] = field(default_factory=dict[str, object])
    """Codes for what a reader must know, e.g. `unparsed_events: 2`."""


class Growing(NamedTuple):
    """A text that an event adds to."""

    path: tuple[str | int, ...]
    """Where in the event the piece of text is: names of members and places in lists."""
    texts: TextPieces


LONGEST_SIGN = 32
"""No sign of an event that ends a stream is longer, in bytes."""


class Assembler(ABC):
    """Events of one stream in, one response object out; incremental.

    A dialect says what its events mean (`_take`), which of them end a stream (`_ends`) and what
    has been built (`_response`). Reading JSON, counting what cannot be read, errors and events of
    a foreign dialect are the same for all of them.

    Nothing is taken after the end: an official client has stopped reading there.
    """

    ENDING_NAMES: frozenset[bytes] = frozenset({b"error"})
    """Names on an `event` line that announce an event which ends the stream."""
    ENDING_MARKS: tuple[bytes, ...] = (b'"error"',)
    """One of these is in the data of every event that ends the stream."""
    STOPPING_NAMES: frozenset[bytes] = frozenset()
    """Names on an `event` line after which clients wait for nothing more, not even data."""

    MEANINGLESS: frozenset[str] = frozenset({"obfuscation", "p"})
    """Members of an event that tell nothing, where one is text or a whole number."""

    signs: tuple[bytes, ...] = ()
    """One of these is in every event that ends the stream; none has a line end in it."""

    __slots__ = ("_aside", "_error", "_mismatch", "_terminal", "_unparsed", "carried_data", "state")

    def __init_subclass__(cls) -> None:
        # A letter may also be written as an escape, and then anything may be in there.
        signs = {*cls.ENDING_NAMES, *cls.ENDING_MARKS, *cls.STOPPING_NAMES, b"[DONE]", b"\\u00"}
        longer = {a for a in signs for b in signs if a != b and b in a}
        cls.signs = tuple(sorted(signs - longer))

    def __init__(self) -> None:
        self.state = StreamState.OPEN
        self.carried_data = False
        """Whether an event with data has come, other than pings."""
        self._terminal: str | None = None
        self._error: object = None
        self._aside: object = None
        """What the event before said of an error, without being an error event."""
        self._unparsed = 0
        self._mismatch = False

    def feed(self, event: Event, *, cut: bool = False) -> None:
        """Take the next event. `cut`: it is the last, and its last line never ended."""
        if self.state is StreamState.ENDED:
            return
        name, data = event
        if name in self.STOPPING_NAMES:
            self._end(name.decode("latin-1"))
            return
        if data is None:
            return
        try:
            value = loads(data)
        except JsonError:
            self._not_json(name, data, cut=cut)
            return
        if not is_object(value):
            self._unparsed += 1
            return
        kind = kind_of(value, name)
        if kind not in _KEEPALIVES:
            self.carried_data = True
            self._aside = None
            try:
                self._take(value, kind)
            except RecursionError:  # nested deeper than values can be compared and joined
                self._unparsed += 1

    def may_end(self, text: bytes) -> bool:
        """Say whether these bytes of the stream may be of an event that ends it; no is certain.

        A sign may be cut, so `text` begins with the last `LONGEST_SIGN` bytes that came before.
        """
        for sign in self.signs:  # noqa: SIM110 - a generator costs twice as much, for each chunk
            if sign in text:
                return True
        return False

    def lines(self, name: bytes | None, data: Sequence[bytes]) -> StreamState:
        """Return the state for a client that acts on lines, not waiting for the blank one.

        `name` and `data` are the lines of the event under way. Where they make up a whole event
        that ends the stream, it is taken.
        """
        if self.state is StreamState.ENDED:
            return self.state
        if name in self.STOPPING_NAMES:
            self._end(name.decode("latin-1"))
            return self.state
        joined = b"\n".join(data)
        if not joined.startswith(b"[DONE]"):
            marked = name in self.ENDING_NAMES or any(m in joined for m in self.ENDING_MARKS)
            if not marked:
                return self.state
            value = loads_object(joined)
            if value is None:
                return StreamState.ENDING
            # Further data lines cannot make another event of what is JSON already.
            kind = kind_of(value, name)
            if not self._ends(value, kind):
                return StreamState.FAILING if is_error(value, kind) else self.state
        self.feed(Event(name, joined))
        return self.state

    def finish(self) -> Assembled:
        """Return what has come. Call it once, at the end."""
        response, notes = self._response()
        if self._unparsed:
            notes["unparsed_events"] = self._unparsed
        if self._mismatch:
            notes["dialect_mismatch"] = True
        if self._error is None and self._terminal is None:
            self._error = self._aside
        if self._error is not None and self._terminal is None:
            response = {**(response or {}), "error": self._error}
        return Assembled(response, self._terminal, self._error, notes)

    @abstractmethod
    def _take(self, event: dict[str, object], kind: str) -> None:
        """Take one event's JSON object; `kind` is its type, or the name it was sent under."""

    @abstractmethod
    def growing(self, event: dict[str, object], kind: str) -> "Growing | None":
        """Say what an event that was just taken adds to, if it is one text and nothing else.

        Another event that differs in that piece of text alone, and in what is `MEANINGLESS`, may be
        taken by adding its piece to the text, as long as no other event comes between. None: it
        tells more, or may. `event` is as it came.
        """

    @abstractmethod
    def _ends(self, event: dict[str, object], kind: str) -> bool:
        """Say whether this event ends the stream."""

    @property
    @abstractmethod
    def content_complete(self) -> bool:
        """Whether all content has come, as far as events tell, short of the terminal one."""

    @abstractmethod
    def _response(self) -> tuple[dict[str, object] | None, dict[str, object]]:
        """Return the object built so far, and notes on it."""

    def _done(self) -> None:
        """Take the sentinel `[DONE]`; where it is not the terminal event it still ends reading."""
        self.state = StreamState.ENDED

    def _end(self, terminal: str) -> None:
        self._terminal = terminal
        self.state = StreamState.ENDED

    def _fail(self, error: object) -> None:
        self._error = error
        self.state = StreamState.ENDED

    def _not_json(self, name: bytes | None, data: bytes, *, cut: bool) -> None:
        if data.startswith(b"[DONE]"):
            self._done()
        elif name == b"error" and not cut:
            self._fail(data.decode("utf-8", "replace"))
        else:
            # What was cut off in the middle of a line was never an event.
            self._unparsed += not cut


def kind_of(event: dict[str, object], name: bytes | None) -> str:
    """Return the type of an event: its own word for it, else the name it was sent under.

    What is sent as `error` is one, though its type is that of the error.
    """
    kind = event.get("type")
    if not isinstance(kind, str):
        return "" if name is None else name.decode("latin-1")
    return "error" if name == b"error" and not kind.startswith("response.") else kind


def is_error(event: dict[str, object], kind: str) -> bool:
    """Say whether this is an error event: one by its type or name, or without any of both.

    An event of another type that holds an error among other things is none: gateways report so of
    what went wrong on the way, and the answer follows.
    """
    return kind == "error" or (not kind and bool(event.get("error")))


@dataclass(frozen=True, slots=True)
class ErrorFacts:
    """An error that this server reports to a client, before it takes a dialect's shape."""

    status: int
    """HTTP status that goes with it, also where the error travels inside a stream."""
    message: str
    code: str | None = None
    """A short machine-readable code, where the dialect has a place for it."""
    sequence_number: int = 0
    """Place in the stream, for dialects that number their events."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One of the public protocols for calling a model."""

    name: DialectName
    route: bytes
    """Path of the model route, without a rollout prefix and without a query."""
    assembler: Callable[[], Assembler]
    """Makes the reader of one stream."""
    error_body: Callable[[ErrorFacts], dict[str, object]]
    """The JSON body of an error response."""
    error_event: Callable[[ErrorFacts], tuple[str | None, dict[str, object]]]
    """Event name (None: unnamed) and JSON data of an error inside a stream."""


_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def openai_error(error: ErrorFacts) -> dict[str, object]:
    """Return an error body as the OpenAI API shapes it, for Responses and for Chat."""
    fallback = "server_error" if error.status >= 500 else "invalid_request_error"
    return {
        "error": {
            "message": error.message,
            "type": _OPENAI_TYPES.get(error.status, fallback),
            "param": None,
            "code": error.code,
        }
    }
