"""A line that is no row in, the whole rows inside it out. Pure.

Rows come to stand in one line where a line end was lost: two of them, or one behind half a row or
behind zeros. What stands in between stays what it is: damage.
"""

from collections.abc import Generator

from nemo_gym.wire.deep_json import decode_by_loop
from nemo_gym.wire.json import LENIENT_DECODER, is_object

__all__ = ["rows_within"]

_START = b'{"model_call_id"'
# Every row has these. A payload may quote rows, but a quoted one lies inside a whole row, or it
# is no more than a request or a response that somebody sent.
_KEYS = frozenset({"model_call_id", "dialect", "status_code", "request", "response"})


def rows_within(line: bytes) -> Generator[tuple[int, int]]:
    """Yield first byte and end of each whole row in `line`, in order; they do not overlap."""
    place = line.find(_START)
    while place >= 0:
        length = _row_length(line[place:])
        if length:
            yield place, place + length
        place = line.find(_START, place + (length or 1))


def _row_length(data: bytes) -> int:
    """Return how many bytes the row has that `data` begins with; 0 when it begins with none."""
    try:
        text = data.decode("utf-8", "surrogateescape")
        value, end = _decoded(text)
        row = text[:end].encode()  # fails where the row itself holds bytes that are no text
    except ValueError:
        return 0
    return len(row) if is_object(value) and value.keys() >= _KEYS else 0


def _decoded(text: str) -> tuple[object, int]:
    try:
        return LENIENT_DECODER.raw_decode(text)
    except RecursionError:  # says nothing of the row: its writer stood on another stack
        return decode_by_loop(text)
