"""A stored line in, the few facts that a listing needs out. Pure.

Only those fields are decoded; what is skipped is checked to be JSON all the same. Of a long row
that stands as a server writes it only what is around its request can be looked at instead.
"""

import math
from typing import Any

import msgspec

from nemo_gym.capture.reading import holds_row, load_line
from nemo_gym.files.libc import find_bytes
from nemo_gym.wire.json import as_object
from nemo_gym.wire.usage import TokenStats, token_stats, usage_of

__all__ = ["Facts", "completed_at", "facts_of", "glance", "row_in"]

_START, _REQUEST, _RESPONSE = b'{"model_call_id":"', b',"request":', b',"response":'
_ENDS = b"}l"
"""Last bytes of an object and of null: what a request is."""
_LONG = 16 * 1024
"""Bytes of a line below which all of it is decoded: 8 us."""
_LONGEST_HEAD = 2048
_STRIDE = 256
"""Where a file system gives zeros for what was not written there are a block of them at least."""


class _Response(msgspec.Struct):
    usage: Any = None
    x_groq: Any = None


class Facts(msgspec.Struct):
    """What a listing needs to know of a call."""

    model_call_id: Any = None
    dialect: str | None = None
    error_category: str | None = None
    completed_at: float | None = None
    response: _Response | None = None

    def tokens(self, line: bytes) -> TokenStats:
        """Return the token counts; `line` is what these facts are of."""
        response = self.response
        if response is None:
            return token_stats(None, self.dialect)
        usage = usage_of({"usage": response.usage, "x_groq": response.x_groq})
        if usage is None:
            # Seldom are they in a choice; reading every choice would double the cost of a listing.
            usage = _usage_in_choices(line)
        return token_stats(usage, self.dialect)


class _WithUsage(msgspec.Struct):
    usage: Any = None


class _Answer(msgspec.Struct):
    choices: list[_WithUsage] = []


class _Choices(msgspec.Struct):
    response: _Answer


_DECODER = msgspec.json.Decoder(Facts)
_CHOICES_DECODER = msgspec.json.Decoder(_Choices)
_NOT_SO = (msgspec.MsgspecError, ValueError, RecursionError)


def row_in(body: bytes) -> dict[str, object] | None:
    """Return the row that a line holds, as every reader of rollouts has it; None: it holds none."""
    try:
        row = as_object(load_line(body))
    except ValueError:
        return None
    return row if row is not None and holds_row(row) else None


def facts_of(line: bytes) -> Facts | None:
    """Return the facts of a line, every byte of which was looked at; None: it holds no row."""
    try:
        if not line.isascii():
            line.decode()  # the decoder does not look into what it skips
        found = _DECODER.decode(line)
    except _NOT_SO:
        # A field of another type than expected, or JSON that only a lenient decoder takes.
        row = row_in(line)
        return None if row is None else _as_far_as_known(row)
    if found.model_call_id is None and row_in(line) is None:
        return None
    return found


def glance(data: bytes, start: int, end: int) -> tuple[Facts | None, bytes]:
    """Return the facts of the line that lies there, and it, without looking into its request.

    A row that was torn, that stands in one line with others or in which a block is zeros is told
    as by `facts_of`; that other bytes were put for some of its request is not noticed.
    """
    if end - start > _LONG and data.startswith(_START, start):
        request = data.find(_REQUEST, start, start + _LONGEST_HEAD)
        response = data.rfind(_RESPONSE, start, end)
        behind_request = 0 < request < response and data[response - 1] in _ENDS
        if behind_request and _is_one_row(data, start, end):
            found, tail = _around_a_request(data, start, request, response, end)
            if found is not None:
                return found, tail
    line = data[start:end]
    return facts_of(line), line


def completed_at(line: bytes) -> float | None:
    """Return when the call of a line ended; None: it does not say, or it is no row."""
    facts, _ = glance(line, 0, len(line))
    return None if facts is None else facts.completed_at


def _is_one_row(data: bytes, start: int, end: int) -> bool:
    """Say whether there is no sign of a second row, nor of zeros in place of what was lost."""
    zeros = b"\0" in data[start:end:_STRIDE]
    return not zeros and find_bytes(data, _START, start + 1, end) < 0


def _around_a_request(
    data: bytes, start: int, request: int, response: int, end: int
) -> tuple[Facts | None, bytes]:
    """Return the facts before the request and behind it, and the latter as an object."""
    tail = b"{%b" % data[response + 1 : end]
    try:
        if not tail.isascii():
            tail.decode()
        found, rest = _DECODER.decode(b"%b}" % data[start:request]), _DECODER.decode(tail)
    except _NOT_SO:
        return None, tail
    found.response, rest.response = rest.response, None
    if rest != _NOTHING:
        return None, tail  # facts where no server writes them
    has_usage = found.response is not None and found.response.usage is not None
    # Nobody but the provider's answer has both: elsewhere the key may be one inside of the request.
    if not has_usage and data.find(_RESPONSE, start, response) >= 0:
        return None, tail
    return found, tail


_NOTHING = Facts()


def _usage_in_choices(line: bytes) -> object:
    try:
        choices = _CHOICES_DECODER.decode(line).response.choices
    except _NOT_SO:
        return usage_of(as_object((row_in(line) or {}).get("response")) or {})
    return usage_of({"choices": [{"usage": choice.usage} for choice in choices]})


def _as_far_as_known(row: dict[str, object]) -> Facts:
    """Return what is of its type in a row; the whole of it was decoded for that."""
    from nemo_gym.records.exchange import Exchange  # noqa: PLC0415 - pydantic with it, 90 ms

    call = Exchange.of(row)
    completed = call.completed_at
    return Facts(
        call.model_call_id,
        call.dialect,
        call.error_category,
        completed if completed is not None and math.isfinite(completed) else None,
        None if call.response is None else _Response(usage_of(call.response)),
    )
