"""Growing values out of the pieces that a stream sends. Plain values in and out.

Every piece of a stream is one of: text to append, a list to extend, an object whose fields are
such pieces again, or a value that replaces the one before. Which it is, is told by the field.
"""

from io import StringIO

from nemo_gym.wire.json import is_array, is_object

__all__ = ["Pieces", "TextPieces", "merge_entries", "merge_object"]

# Fields of nested objects whose text grows; every other string is an id, a type or a constant,
# repeated as a whole.
_GROWING = frozenset({"content", "data", "summary", "text", "thinking", "transcript"})

# Lists whose entries are whole, however alike: no entry goes on with the one before.
_LISTED = frozenset({"annotations", "citations"})


class TextPieces:
    """A text that grows; keeps the text, not its pieces."""

    __slots__ = ("_all_alike", "_first", "_text")

    def __init__(self) -> None:
        self._text = StringIO()
        self._first: str | None = None
        self._all_alike = True

    def add(self, piece: str) -> None:
        """Append `piece`."""
        if self._first is None:
            self._first = piece
        elif piece != self._first:
            self._all_alike = False
        self._text.write(piece)

    def extend(self, pieces: list[str]) -> None:
        """Append several pieces, at least one."""
        if self._first is None:
            self._first = pieces[0]
        if self._all_alike and pieces.count(self._first) < len(pieces):
            self._all_alike = False
        self._text.write("".join(pieces))

    @property
    def text(self) -> str:
        """All pieces, joined."""
        return self._text.getvalue()

    @property
    def constant_or_text(self) -> str:
        """The piece, where all of them were the same; else all of them, joined."""
        return self._first if self._all_alike and self._first is not None else self.text


class Pieces:
    """The fields of one object that grows, in order of appearance."""

    __slots__ = ("_texts", "_values")

    def __init__(self) -> None:
        self._texts: dict[str, TextPieces] = {}
        self._values: dict[str, object] = {}

    def add(self, key: str, piece: object) -> None:
        """Add one piece to the field `key`; null only says that the field exists."""
        if isinstance(piece, str):
            text = self._texts.get(key)
            if text is None:
                text = self._texts[key] = TextPieces()
                self._values.setdefault(key, None)
            text.add(piece)
        elif piece is None:
            self._values.setdefault(key, None)
        elif is_array(piece):
            entries = self._values.get(key)
            entries = entries if is_array(entries) else []
            self._values[key] = merge_entries(entries, piece, whole=key in _LISTED)
        elif is_object(piece):
            fields = self._values.get(key)
            self._values[key] = merge_object(fields if is_object(fields) else {}, piece)
        else:
            self._values[key] = piece

    def text(self, key: str) -> TextPieces | None:
        """Return the text of the field `key`, where it is one that pieces were added to."""
        return self._texts.get(key)

    def fields(self, growing: frozenset[str]) -> dict[str, object]:
        """Return all fields. Text of fields in `growing` is joined; a constant elsewhere is not."""
        fields: dict[str, object] = dict(self._values)
        for key, text in self._texts.items():
            if fields[key] is None:
                fields[key] = text.text if key in growing else text.constant_or_text
        return fields


def merge_object(fields: dict[str, object], piece: dict[str, object]) -> dict[str, object]:
    """Add the fields of `piece` to `fields`, in place; return `fields`."""
    for key, value in piece.items():
        old = fields.get(key)
        if isinstance(value, str) and isinstance(old, str) and key in _GROWING:
            # With the only reference in a local, += grows the text in place; else it copies it.
            fields[key] = None
            old += value
            fields[key] = old
        elif is_object(value) and is_object(old):
            merge_object(old, value)
        elif is_array(value) and is_array(old):
            fields[key] = merge_entries(old, value, whole=key in _LISTED)
        elif value is not None or key not in fields:
            fields[key] = value
    return fields


def merge_entries(
    entries: list[object], pieces: list[object], *, whole: bool = False
) -> list[object]:
    """Add `pieces` to the list `entries`, in place; return `entries`.

    An object with an `index` goes to the entry of that index and type. One of a growing kind
    without an index goes to the last entry when that has the same type, unless pieces are
    `whole`. Others are appended.
    """
    for piece in pieces:
        entry = _entry_of(entries, piece, whole=whole) if is_object(piece) else None
        if entry is not None and is_object(piece):
            merge_object(entry, piece)
        else:
            entries.append(piece)
    return entries


def _entry_of(
    entries: list[object], piece: dict[str, object], *, whole: bool
) -> dict[str, object] | None:
    kind, index = piece.get("type"), piece.get("index")
    if index is not None:
        for entry in entries:
            if is_object(entry) and entry.get("index") == index and entry.get("type") == kind:
                return entry
        return None
    last = entries[-1] if entries else None
    grows = not whole and kind is not None and not _GROWING.isdisjoint(piece)
    return last if is_object(last) and last.get("type") == kind and grows else None
