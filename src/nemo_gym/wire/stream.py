"""Bytes of one event stream in, the assembled response out. Incremental, pure.

Says after every chunk how far a client is that reads the same bytes line by line.
"""

from nemo_gym.wire.dialects.base import LONGEST_SIGN, Assembled, Dialect, StreamState
from nemo_gym.wire.repeats import Repeats
from nemo_gym.wire.sse import Event, EventParser

__all__ = ["StreamReader", "looks_like_events"]

_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
_LONGEST_FIELD = 6
_MARK = b"\xef\xbb\xbf"
_OPEN, _ENDED = StreamState.OPEN, StreamState.ENDED
# Some thirty chunks of a Chat stream, read in a fifth of a millisecond.
_TOGETHER = 8192
_LEARNED_FROM = 4
"""The first to be read together are a fourth of that: what repeats is known sooner so."""


def looks_like_events(head: bytes, *, last: bool, said: bool = False) -> bool | None:
    """Say whether a body that begins with `head` is an event stream; None: too early to tell.

    `last`: no more will come. `said`: the headers call it one. It is then, unless it is a JSON
    object, as errors and whole answers of some servers are: no line of a stream begins as those do.
    """
    if said:
        begun = head.removeprefix(_MARK).lstrip()
        if not last and (not begun or _MARK.startswith(head)):
            return None
        return not begun.startswith(b"{")
    head = head.removeprefix(_MARK).lstrip(b"\r\n")
    if head.startswith(_FIELDS):
        return True
    return None if len(head) < _LONGEST_FIELD and not last else False


class StreamReader:
    """Parser and assembler of one stream.

    Chunks are offered to `waits` first, and what it does not take goes to `feed`. Those that cannot
    be of the end wait until there are `together` bytes of them: read one by one among the other
    work of a server, capturing a chunk costs 26 us; read together, 12.
    """

    __slots__ = (
        "_assembler",
        "_data_since",
        "_edge",
        "_may_wait",
        "_parser",
        "_repeats",
        "_rest",
        "_room",
        "_signed",
        "_signs",
        "_state",
        "_together",
        "_waiting",
        "first_data_at",
    )

    def __init__(self, dialect: Dialect, *, together: int = _TOGETHER) -> None:
        self.first_data_at: float | None = None
        """Time of the chunk in which the first event with data began: no comment, no ping."""
        self._parser = EventParser()
        self._assembler = dialect.assembler()
        self._signs = self._assembler.signs
        self._state = _OPEN
        self._data_since: float | None = None
        self._repeats = Repeats()
        self._together = together
        self._waiting: list[bytes] = []
        self._rest = b""
        """The beginning of an event, of what waited before."""
        self._room = together // _LEARNED_FROM
        """How many bytes may still be added to those that wait, and one more."""
        self._edge = b""
        self._signed = False
        """Whether the event under way may be one that ends the stream."""
        self._may_wait = False
        """Whether the first data have come, and nothing of the end."""

    @property
    def content_complete(self) -> bool:
        """Whether all content has come, though the terminal event may not have."""
        self._catch_up()
        return self._assembler.content_complete

    @property
    def is_over(self) -> bool:
        """Whether a client has all it waits for; what comes behind that is not read."""
        return self._state is _ENDED

    @property
    def waiting(self) -> bytes:
        """The bytes that were taken by `waits` and not read yet."""
        return b"".join(self._waiting)

    def waits(self, chunk: bytes | bytearray | memoryview) -> bool:
        """Take the next bytes if they can wait to be read: the stream stays open with them.

        False: they were not taken, `feed` has to. Nearly every chunk of a stream can wait, and
        for those this is all that is done before they go on to the client.
        """
        if not self._may_wait or not isinstance(chunk, bytes):
            return False
        edge = self._edge
        window = edge + chunk if edge else chunk
        for sign in self._signs:
            if sign in window:
                return False
        if len(chunk) >= self._room:
            return False
        if edge or chunk[-1:] != b"\n":
            self._edge = _edge_of(window)
        self._room -= len(chunk)
        self._waiting.append(chunk)
        return True

    def feed(self, chunk: bytes, now: float) -> StreamState:
        """Read the next bytes, received at `now`, and what waits before them.

        What comes after the end is not taken.
        """
        if self._state is _ENDED:
            return _ENDED
        window = self._edge + chunk
        self._edge = _edge_of(window)
        if self._assembler.may_end(window):
            self._signed = True
        if self._may_wait and not self._signed:
            # It may wait as well, but then there is enough to be read.
            self._waiting.append(chunk)
            rest = self._read_waiting()
            if len(rest) <= self._together:
                self._rest = rest
            else:
                self._read(rest, now)
            return self._state
        self._read_and_learn(self._read_waiting() + chunk, now)
        self._may_wait = (
            self.first_data_at is not None and self._state is _OPEN and not self._signed
        )
        return self._state

    def finish(self) -> Assembled:
        """Say that no more will come; return what the stream amounts to. Call it once."""
        self._catch_up()
        cut = bool(self._parser.partial)
        for event in self._parser.finish():
            self._assembler.feed(event, cut=cut)
        if self._assembler.carried_data and self.first_data_at is None:
            self.first_data_at = self._data_since
        return self._assembler.finish()

    def _catch_up(self) -> None:
        """Read what waits. None of it is the first data or the end, so no time is needed."""
        rest = self._read_waiting()
        if rest:
            self._read(rest, 0.0)

    def _read_waiting(self) -> bytes:
        """Read the whole events among what waits; return what is left."""
        if not self._waiting:
            rest, self._rest = self._rest, b""
            return rest
        waiting = b"".join((self._rest, *self._waiting))
        self._waiting.clear()
        self._rest, self._room = b"", self._together
        end = _end_of_events(waiting)
        if end:
            self._read_events(waiting[:end])
        return waiting[end:]

    def _read_events(self, events: bytes) -> None:
        """Read what ends with an event: what repeats all at once, then the others one by one."""
        taken = self._repeats.take(events) if self._parser.is_between_events else 0
        if taken < len(events):
            self._read_and_learn(events[taken:] if taken else events, 0.0)

    def _read_and_learn(self, events: bytes, now: float) -> None:
        """Read events one by one, and learn from the last of them in the middle of a stream."""
        parser, is_early = self._parser, not self._may_wait
        begun = not parser.is_between_events
        self._read(events, now)
        if not (is_early or begun) and parser.is_between_events and self._state is _OPEN:
            self._repeats.learn(events, self._assembler)

    def _read(self, chunk: bytes, now: float) -> None:
        assembler, parser = self._assembler, self._parser
        events = parser.feed(chunk)
        if events:
            self._repeats.forget()
        if self.first_data_at is None:
            self._look_for_data(events, now)
        else:
            for event in events:
                assembler.feed(event)
        if parser.name is None and not parser.data:
            self._state = assembler.state
            self._signed = self._signed and bool(parser.partial)
        elif b"\n" in chunk or b"\r" in chunk:
            self._state = assembler.lines(parser.name, parser.data)

    def _look_for_data(self, events: list[Event], now: float) -> None:
        """Feed `events` and note when the first one with data began."""
        for event in events:
            self._assembler.feed(event)
            if self._assembler.carried_data and self.first_data_at is None:
                self.first_data_at = now if self._data_since is None else self._data_since
            self._data_since = None
        if not self._parser.data and not self._parser.partial.startswith(b"data:"):
            self._data_since = None
        elif self._data_since is None:
            self._data_since = now


def _end_of_events(text: bytes) -> int:
    """Return where the last event ends whose blank line has come, 0 where none has."""
    line = max(text.rfind(b"\n\n"), text.rfind(b"\n\r\n") + 1)
    return line + 2 if line > 0 else 0


def _edge_of(window: bytes) -> bytes:
    """Return what a sign may have begun in: no sign goes on beyond the end of a line."""
    return b"" if window.endswith((b"\n", b"\r")) else window[-LONGEST_SIGN:]
