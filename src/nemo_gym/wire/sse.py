"""Bytes of a server-sent event stream in, whole events out. No sockets, no clock, no JSON.

The grammar is that of the WHATWG HTML standard: lines end in LF, CR or CRLF, a byte order mark at
the very start is no part of the stream, comments begin with a colon, `data` lines of one event are
joined by LF. Bytes may be cut anywhere; what is not yet a whole line, or not yet a whole event,
waits in the parser.

Names and data stay bytes: UTF-8 is decoded once, by whoever reads the JSON.
"""

from typing import NamedTuple

__all__ = ["Event", "EventParser"]

_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event that has data or a name."""

    name: bytes | None
    """Value of its `event` line; None when it had none (or an empty one)."""
    data: bytes | None
    """Values of its `data` lines, joined by LF; None: it had none, and the standard drops it."""


class EventParser:
    """Cuts a stream into events: feed it as bytes come, `finish` it at the end.

    `name` and `data` show the event whose lines have come but whose blank line has not, so that a
    reader can tell that a client which stops at a line has all it waits for.
    """

    __slots__ = ("_head", "_skip_lf", "_started", "_tail", "data", "name")

    def __init__(self) -> None:
        self.name: bytes | None = None
        self.data: list[bytes] = []
        self._tail: list[bytes] = []
        self._head = b""
        self._started = False
        self._skip_lf = False

    @property
    def is_between_events(self) -> bool:
        """Whether the next byte is the first of an event, or of what stands between events."""
        nothing = self.name is None and not self.data and not self._tail
        return nothing and self._started and not self._skip_lf

    @property
    def partial(self) -> bytes:
        """The line whose end has not come yet."""
        if len(self._tail) > 1:
            self._tail = [b"".join(self._tail)]
        return self._tail[0] if self._tail else b""

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes of the stream; return the events that they complete."""
        if not self._started:
            chunk = self._without_mark(chunk)
        if self._skip_lf and chunk:
            # The last chunk ended in CR, which ended its line; an LF now is the rest of CRLF.
            self._skip_lf = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            self._skip_lf = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        if len(lines) > 1 and self._tail:
            self._tail.append(lines[0])
            lines[0] = b"".join(self._tail)
            self._tail = []
        rest = lines.pop()
        if rest:
            self._tail.append(rest)
        return self._events(lines) if lines else []

    def finish(self) -> list[Event]:
        """Say that the stream has ended; return the event that lacks only its blank line.

        The standard drops such an event. Clients of model servers do not, and a stream that is cut
        after its last line has lost nothing, so it counts here too. The end also ends a line.
        """
        return self._events([self.partial, b""])

    def _without_mark(self, chunk: bytes) -> bytes:
        """Drop a byte order mark from the start of the stream, however it is cut."""
        chunk = self._head + chunk
        if _BOM.startswith(chunk):
            self._head = chunk
            return b""
        self._started = True
        return chunk.removeprefix(_BOM)

    def _events(self, lines: list[bytes]) -> list[Event]:
        events: list[Event] = []
        data = self.data
        for line in lines:
            if not line:
                if data:
                    events.append(Event(self.name, data[0] if len(data) == 1 else b"\n".join(data)))
                    data = self.data = []
                elif self.name is not None:
                    events.append(Event(self.name, None))
                self.name = None
            elif line[:5] == b"data:":
                data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line[:6] == b"event:":
                self.name = (line[7:] if line[6:7] == b" " else line[6:]) or None
            elif line == b"data":
                data.append(b"")
            elif line == b"event":
                self.name = None
            # Everything else is a comment, an id, a reconnection time or an unknown field.
        return events
