"""Responses: `POST /v1/responses`.

A stream names the response (`response.created`), adds and fills output items by index, and ends
with an event that carries the whole response again. Some servers leave the items out of that one.
"""

from nemo_gym.wire.dialects.base import (
    Assembler,
    Dialect,
    ErrorFacts,
    Growing,
    StreamState,
    is_error,
    openai_error,
)
from nemo_gym.wire.dialects.output_items import Item, fills_item, item_type_of
from nemo_gym.wire.json import is_object

__all__ = ["RESPONSES", "ResponsesAssembler"]

_TERMINALS = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}
)


_OPEN, _FAILING = StreamState.OPEN, StreamState.FAILING


class ResponsesAssembler(Assembler):
    """Events in, one `response` out."""

    ENDING_NAMES = frozenset({name.encode() for name in _TERMINALS} | {b"error"})
    ENDING_MARKS = (*(f'"{name}"'.encode() for name in sorted(_TERMINALS)), b'"error"')

    MEANINGLESS = Assembler.MEANINGLESS | {"sequence_number"}

    __slots__ = ("_before", "_final", "_items", "_snapshot")

    def __init__(self) -> None:
        super().__init__()
        self._snapshot: dict[str, object] | None = None
        self._final: dict[str, object] | None = None
        self._items: dict[int, Item] = {}
        self._before: list[tuple[int, Item]] = []
        """Items whose index a later one has too, as where a gateway numbers none of them."""

    def _take(self, event: dict[str, object], kind: str) -> None:
        if "choices" in event and "type" not in event:
            # A chunk of Chat, whatever name it was sent under.
            self._mismatch = True
        elif kind.startswith("response."):
            self.state = _OPEN  # an error before was not the end
            self._take_own(event, kind)
        elif is_error(event, kind):
            # `response.failed` may still follow; an official client has stopped reading by then.
            self._error = event.get("error") or event
            self.state = _FAILING
        elif kind.startswith(("message_", "content_block_")):
            self._mismatch = True
        else:
            self._aside = event.get("error") or None

    def _take_own(self, event: dict[str, object], kind: str) -> None:
        """Take an event of this dialect."""
        response = event.get("response")
        if kind in _TERMINALS:
            self._final = response if is_object(response) else self._snapshot
            self._end(kind)
        elif kind == "response.output_item.added":
            self._announce(event)
        elif kind == "response.output_item.done":
            self._finish_item(event)
        elif is_object(response):
            self._snapshot = response
        elif fills_item(kind):
            self._item(event, kind).take(kind, event)

    def growing(self, event: dict[str, object], kind: str) -> Growing | None:
        """Say what a delta adds to that was just taken."""
        of_chat = "choices" in event and "type" not in event
        if of_chat or "response" in event or not kind.startswith("response."):
            return None
        return self._item(event, kind).growing(kind, event) if fills_item(kind) else None

    def _ends(self, event: dict[str, object], kind: str) -> bool:
        return kind in _TERMINALS

    def _announce(self, event: dict[str, object]) -> None:
        fields = event.get("item")
        self._begin(self._place(event), Item(fields if is_object(fields) else {}))

    def _begin(self, place: int, item: Item) -> None:
        """Put `item` at its index; one that is there under another id stays before it."""
        there = self._items.get(place)
        if there is not None and (item.id is None or item.id != there.id):
            self._before.append((place, there))
        self._items[place] = item

    def _finish_item(self, event: dict[str, object]) -> None:
        fields = event.get("item")
        fields = fields if is_object(fields) else {}
        known = fields.get("id")
        place = self._place(event, known=known, fills=known is None)
        item = self._same_index(place, known) or self._items.get(place)
        if item is None or (item.done and item.id != known):
            item = Item(fields)
            self._begin(place, item)
        item.finish(fields)

    def _same_index(self, place: int, known: object) -> Item | None:
        """Return the item with the id `known` among those whose index a later one has too."""
        for index, item in self._before:
            if index == place and known is not None and item.id == known:
                return item
        return None

    def _item(self, event: dict[str, object], kind: str) -> Item:
        """Return the item that an event fills: that of its index, of its id, or the last one."""
        known = event.get("item_id")
        place = self._place(event, known=known, fills=True)
        item = self._items.get(place)
        if self._before:
            item = self._same_index(place, known) or item
        if item is None:
            fields: dict[str, object] = {} if known is None else {"id": known}
            item_type = item_type_of(kind)
            if item_type is not None:
                fields["type"] = item_type
            item = self._items[place] = Item(fields)
        return item

    def _place(self, event: dict[str, object], known: object = None, *, fills: bool = False) -> int:
        index = event.get("output_index")
        if type(index) is int:
            return index
        for place, item in self._items.items():
            if known is not None and item.id == known:
                return place
        last = max(self._items, default=-1)
        return last if fills and last >= 0 and not self._items[last].done else last + 1

    @property
    def content_complete(self) -> bool:
        """Whether every item that was announced is done."""
        items = self._in_order()
        return bool(items) and all(item.done for item in items)

    def _in_order(self) -> list[Item]:
        placed = [*self._before, *self._items.items()]
        return [item for _, item in sorted(placed, key=lambda entry: entry[0])]

    def _response(self) -> tuple[dict[str, object] | None, dict[str, object]]:
        items = self._in_order()
        unfinished = sum(not item.done for item in items)
        notes: dict[str, object] = {"unterminated_items": unfinished} if unfinished else {}
        if self._final is not None:
            response = dict(self._final)
            if not response.get("output") and any(item.told for item in items):
                response["output"] = [item.result() for item in items if item.told]
            return response, notes
        if self._snapshot is None and not items:
            return None, notes
        return {**(self._snapshot or {}), "output": [item.result() for item in items]}, notes


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
    assembler=ResponsesAssembler,
    error_body=openai_error,
    error_event=_error_event,
)
