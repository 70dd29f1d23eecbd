"""A Responses create request in, the same in words that llama.cpp takes out. Pure.

Bytes pass as they came where nothing has to change. What llama.cpp's route refuses although the
protocol allows it: a message of the assistant without `"type"`, a reasoning item without text, a
member that is null.
"""

from typing import Final

import msgspec

__all__ = ["understood"]

_Item = dict[str, msgspec.Raw]
_BODY: Final = msgspec.json.Decoder(_Item)
_ITEMS: Final = msgspec.json.Decoder(list[_Item])
_CONTENT: Final = msgspec.json.Decoder(list[msgspec.Raw])
_ENCODER: Final = msgspec.json.Encoder()
_MESSAGE: Final = msgspec.Raw(b'"message"')


def understood(body: bytes) -> bytes:
    """Return a request with the same meaning; one that cannot be read passes as it is."""
    try:
        members = _BODY.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return body
    asked = {name: raw for name, raw in members.items() if bytes(raw) != b"null"}
    items = _taken_items(bytes(asked.get("input", b"")))
    if items is not None:
        asked["input"] = msgspec.Raw(_ENCODER.encode(items))
    elif len(asked) == len(members):
        return body
    return _ENCODER.encode(asked)


def _taken_items(said: bytes) -> list[_Item] | None:
    """Return input items in words that are taken; None where they need no change, or are none."""
    try:
        items = _ITEMS.decode(said)
    except (msgspec.MsgspecError, RecursionError):
        return None
    taken = [_with_type(item) for item in items if not _is_empty_reasoning(item)]
    return None if taken == items else taken


def _with_type(item: _Item) -> _Item:
    return item if "type" in item or "role" not in item else {"type": _MESSAGE, **item}


def _is_empty_reasoning(item: _Item) -> bool:
    if bytes(item.get("type", b"")) != b'"reasoning"':
        return False
    content = bytes(item.get("content", b""))
    return content[:1] != b"[" or not _CONTENT.decode(content)
