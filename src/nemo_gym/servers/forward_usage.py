"""What an answer on its way says of tokens: its bytes in as they pass, counts out. Pure.

Nothing but usage is read: of a JSON body its few members, of a stream the events that speak of it.
"""

import re
from typing import Annotated, Any, NamedTuple

import msgspec

from nemo_gym.servers.forward_body import decoded
from nemo_gym.telemetry.ended_calls import Tokens
from nemo_gym.wire.dialects import DialectName
from nemo_gym.wire.json import MOST_COUNTED, is_object
from nemo_gym.wire.usage import cache_signal, token_stats

__all__ = ["TokenCounts", "UsageReader", "quick_counts", "usage_reader"]

_WORD = b'"usage"'
_SAID = re.compile(rb'"usage"(?!\s*:\s*null)')
_BACKSLASH = ord("\\")
_LONGEST = 16 << 20
"""Bytes of one JSON body or one event beyond which its usage is not looked for."""


_Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_COUNTED)]


class TokenCounts(NamedTuple):
    """Tokens of one call; None: the provider does not say."""

    tokens_in: int | None
    tokens_out: int | None
    cache_read: int | None = None
    cache_creation: int | None = None
    reasoning: int | None = None


class _Part(msgspec.Struct):
    usage: Any = None


class _Told(msgspec.Struct):
    """Where the three dialects put usage, streamed or whole."""

    usage: Any = None
    response: _Part | None = None
    message: _Part | None = None
    x_groq: _Part | None = None
    choices: msgspec.Raw = msgspec.Raw()
    """Read only where nothing else has it."""


class _Details(msgspec.Struct, gc=False):
    cached_tokens: _Count | None = None
    cache_read_tokens: _Count | None = None
    cache_creation_tokens: _Count | None = None
    cache_write_tokens: _Count | None = None
    cache_creation_input_tokens: _Count | None = None
    reasoning_tokens: _Count | None = None


class _Sizes(msgspec.Struct, gc=False):
    """Usage without its parts."""

    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    cache_read_input_tokens: _Count | None = None
    cache_creation_input_tokens: _Count | None = None


class _Parts(_Sizes, gc=False):
    """Usage as the three dialects have it."""

    prompt_cache_hit_tokens: _Count | None = None
    cached_tokens: _Count | None = None
    reasoning_tokens: _Count | None = None
    input_tokens_details: _Details | None = None
    prompt_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


class _ToldSizes(msgspec.Struct, gc=False):
    usage: _Sizes | None = None


class _ToldParts(msgspec.Struct, gc=False):
    usage: _Parts | None = None


_SIZES = msgspec.json.Decoder(_ToldSizes)
_PARTS = msgspec.json.Decoder(_ToldParts)
_DECODER = msgspec.json.Decoder(_Told)
_CHOICES = msgspec.json.Decoder(list[_Part])


class UsageReader:
    """Watches one answer pass: `feed` it as bytes come, ask `counts` at its end."""

    __slots__ = ("_dialect", "_encoding", "_kept", "_size", "_stream", "_usage")

    def __init__(self, dialect: DialectName, *, stream: bool, encoding: str | None = None) -> None:
        self._dialect: DialectName = dialect
        self._stream = stream
        self._encoding = encoding
        self._kept: list[bytes] = []
        self._size = 0
        self._usage: dict[str, object] = {}

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body."""
        if self._stream and not self._kept and data.endswith(b"\n"):
            # Whole lines, as nearly every chunk has them: nothing is kept.
            self._size = 0
            if _WORD in data:
                self._read_lines(data)
            return
        self._size += len(data)
        if self._size > _LONGEST:
            self._kept.clear()
            self._size = _LONGEST if not self._stream or b"\n" not in data else 0
            return
        self._kept.append(data)
        if self._stream and b"\n" in data:
            whole = b"".join(self._kept)
            end = whole.rfind(b"\n") + 1
            self._kept = [whole[end:]] if end < len(whole) else []
            self._size = len(whole) - end
            self._read_lines(whole[:end])

    def counts(self) -> TokenCounts | None:
        """Return what the answer said, once all of it has passed; None: nothing."""
        kept = self._kept
        rest = kept[0] if len(kept) == 1 else b"".join(kept)
        kept.clear()
        if self._stream:
            self._read_lines(rest)
        elif rest:
            self._read(rest)
        usage = self._usage
        if not usage:
            return None
        stats = token_stats(usage, self._dialect)
        return TokenCounts(
            stats.tokens_in,
            stats.tokens_out,
            cache_signal(usage)[1],
            stats.cache_creation_tokens,
            stats.tokens_reasoning,
        )

    def _read_lines(self, lines: bytes) -> None:
        if _WORD not in lines:
            return
        for line in lines.split(b"\n"):
            # Some servers say in each chunk that they do not say it yet.
            if line.startswith(b"data:") and _SAID.search(line):
                self._read(line[5:])

    def _read(self, text: bytes) -> None:
        """Take the usage in one JSON text; what has none, or is no JSON, says nothing."""
        try:
            if self._encoding is not None:
                text = decoded(text, self._encoding, _LONGEST)
            told = _DECODER.decode(text)
        except (msgspec.MsgspecError, LookupError, ValueError, RecursionError):
            return
        if told.message is not None:
            self._take(told.message.usage)
        if told.response is not None:
            self._take(told.response.usage)
        self._take(told.usage)
        if told.x_groq is not None:
            self._take(told.x_groq.usage)
        if told.usage is None and _WORD in bytes(told.choices):
            self._take(_usage_in(told.choices))

    def _take(self, usage: object) -> None:
        # Messages says the prompt's size first and the answer's later; what is null later takes
        # nothing back.
        if usage is not None and is_object(usage):
            self._usage |= {key: value for key, value in usage.items() if value is not None}


def _usage_in(choices: msgspec.Raw) -> object:
    """Return the usage that a choice carries, as the streams of some servers do."""
    try:
        found = _CHOICES.decode(choices)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return next((choice.usage for choice in found if choice.usage is not None), None)


def quick_counts(body: bytes, dialect: DialectName, *, parts: bool = True) -> Tokens | None:
    """Return what a whole JSON body tells of tokens; without `parts` only of prompt and answer.

    That is what a `UsageReader` finds, several times as fast.
    """
    usage = _own_usage(body, _PARTS if parts else _SIZES)
    if usage is None:
        return _read_counts(body, dialect)
    reads, writes = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    asked, other = usage.input_tokens, usage.prompt_tokens
    if dialect == "messages" and asked is not None:
        asked += (reads or 0) + (writes or 0)
    elif dialect == "chat":
        asked, other = other, asked
    prompt = other if asked is None else asked
    answered = usage.completion_tokens if usage.output_tokens is None else usage.output_tokens
    if not isinstance(usage, _Parts):
        return prompt, answered, None, None, None
    counts = _with_parts(prompt, answered, usage)
    # An API has one group of each two; which is meant where there are both, the reader knows.
    return _read_counts(body, dialect) if counts is None else counts


def _own_usage(
    body: bytes, decoder: "msgspec.json.Decoder[_ToldSizes] | msgspec.json.Decoder[_ToldParts]"
) -> _Sizes | None:
    """Return the body's own usage, None where that takes a closer look."""
    at = body.rfind(_WORD)
    if at <= 0 or body[at - 1] == _BACKSLASH:
        return None  # what follows a backslash is the end of another word
    try:
        # From the last mention on: if that is the body's own member, what follows closes one
        # object; anything else is no JSON so. The text of the answer need not be read.
        return decoder.decode(b"{" + body[at:]).usage
    except (msgspec.MsgspecError, RecursionError):
        return None


def _read_counts(body: bytes, dialect: DialectName) -> TokenCounts | None:
    reader = UsageReader(dialect, stream=False)
    reader.feed(body)
    return reader.counts()


def _with_parts(prompt: int | None, answered: int | None, usage: _Parts) -> Tokens | None:
    # Straight on, without loops: it is on the path of every call to a provider.
    group, other = usage.input_tokens_details, usage.prompt_tokens_details
    if group is None:
        group = other
    elif other is not None:
        return None
    cached, written = None, usage.cache_creation_input_tokens
    if group is not None:
        cached = group.cached_tokens
        if cached is None:
            cached = group.cache_read_tokens
        if written is None:
            written = _written(group)
    if cached is None:
        cached = _cached(usage)
    group, other = usage.output_tokens_details, usage.completion_tokens_details
    if group is None:
        group = other
    elif other is not None:
        return None
    reasoning = None if group is None else group.reasoning_tokens
    if reasoning is None:
        reasoning = usage.reasoning_tokens
    return prompt, answered, cached, written, reasoning


def _cached(usage: _Parts) -> int | None:
    if usage.cache_read_input_tokens is not None:
        return usage.cache_read_input_tokens
    if usage.prompt_cache_hit_tokens is not None:
        return usage.prompt_cache_hit_tokens
    return usage.cached_tokens


def _written(group: _Details) -> int | None:
    if group.cache_creation_tokens is not None:
        return group.cache_creation_tokens
    if group.cache_write_tokens is not None:
        return group.cache_write_tokens
    return group.cache_creation_input_tokens


def usage_reader(
    dialect: DialectName, content_type: bytes, encoding: bytes | None
) -> UsageReader | None:
    """Return what watches an answer with this head; None for one that is not looked into."""
    if content_type.startswith(b"application/json"):
        named = None if encoding is None else encoding.decode("latin-1")
        return UsageReader(dialect, stream=False, encoding=named)
    # A compressed stream would have to be unpacked piece by piece for the sake of two numbers.
    if encoding is None and content_type.startswith(b"text/event-stream"):
        return UsageReader(dialect, stream=True)
    return None
