"""A response head that says its length more than once in, the same with one length out. Pure.

RFC 9110, 8.6: one decimal value repeated, in lines of its own or in a list, may be taken for that
value. Where two values differ nobody knows where the body ends, so such a head stays refused.
"""

import re

__all__ = ["may_end_head", "with_one_length"]

_NAME = b"content-length"
_LINE = re.compile(rb"\ncontent-length[^\n]*", re.IGNORECASE)
_INTERIM = re.compile(rb"HTTP/1\.[01] 1\d\d")
_END = b"\r\n\r\n"


def with_one_length(data: bytes) -> bytes | None:
    """Return what came of a response, its repeated length said once.

    `b""`: wait for the rest of the head. None: it repeats no length, or different ones.
    """
    said = _LINE.findall(data)
    if len(said) < 2 and not any(b"," in line for line in said):
        return None
    begin = 0
    while True:
        end = data.find(_END, begin)
        if end < 0:
            return b""
        if not _INTERIM.match(data, begin):
            break
        begin = end + len(_END)
    first, *lines = data[begin:end].split(b"\r\n")
    fields = [_split(line) for line in lines]
    values = [value.strip() for name, text in fields if name == _NAME for value in text.split(b",")]
    if len(set(values)) != 1 or not values[0].isdigit():
        return None
    kept = [line for line, (name, _) in zip(lines, fields, strict=True) if name != _NAME]
    head = b"\r\n".join((first, b"%b: %b" % (_NAME, values[0]), *kept))
    return data[:begin] + head + data[end:]


def may_end_head(before: bytes | bytearray, piece: bytes) -> bool:
    """Say whether `piece`, which comes behind `before`, may be what ends a head.

    Until then there is no use in looking at a head again that was found to repeat its length.
    """
    return _END in before[1 - len(_END) :] + piece


def _split(line: bytes) -> tuple[bytes, bytes]:
    name, _, text = line.partition(b":")
    return name.lower(), text
