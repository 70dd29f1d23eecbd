"""Three states in, what is not as it should be out: before, as expected, as it is. Pure.

Records that were there before are compared by id. Those that were made are compared by what they
say, whatever their ids and their order. Text is compared without case, blanks and punctuation at
its ends; addresses as sets; telephone numbers by their digits.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nemo_gym.resources_servers.workplace_tools.workplace import KINDS, Record, Workplace

__all__ = ["Looseness", "differences"]

_LISTS = frozenset({"to", "cc", "attendees"})
_REFERENCES = frozenset({"in_reply_to", "forwarded"})
_NEW = "(new)"
_EDGES = " .,;:!?\"'"


@dataclass(frozen=True, slots=True)
class Looseness:
    """Fields of made records whose text is free, as long as it contains certain words."""

    words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By `kind.field`, such as `emails.body`: what each must contain."""

    def is_free(self, kind: str, name: str) -> bool:
        """Return whether a field's exact text does not matter."""
        return f"{kind}.{name}" in self.words

    def missing(self, kind: str, record: Record) -> list[str]:
        """Return the words that the free fields of a record lack."""
        return [
            word
            for place, words in self.words.items()
            if place.startswith(f"{kind}.")
            for word in words
            if _plain(word) not in _plain(str(record.get(place.partition(".")[2], "")))
        ]


def differences(
    before: Workplace, expected: Workplace, actual: Workplace, loose: Looseness
) -> list[str]:
    """Return one sentence for each difference between `actual` and `expected`; none: all right."""
    known = frozenset(before.emails)
    return [
        line
        for kind in KINDS
        for line in (
            *_of_old(before.records(kind), expected.records(kind), actual.records(kind), known),
            *_of_new(
                kind,
                _made(before.records(kind), expected.records(kind)),
                _made(before.records(kind), actual.records(kind)),
                known,
                loose,
            ),
        )
    ]


def _of_old(
    before: Mapping[str, Record],
    expected: Mapping[str, Record],
    actual: Mapping[str, Record],
    known: frozenset[str],
) -> Iterator[str]:
    for record_id in before:
        wanted, found = expected.get(record_id), actual.get(record_id)
        if wanted is found:
            continue
        if found is None:
            yield f"{record_id} is gone, and should not be"
        elif wanted is None:
            yield f"{record_id} is still there, and should be gone"
        else:
            yield from _fields(record_id, wanted, found, known)


def _fields(name: str, wanted: Record, found: Record, known: frozenset[str]) -> Iterator[str]:
    for key in dict.fromkeys([*wanted, *found]):
        if key != "id" and _value(key, wanted, known) != _value(key, found, known):
            should_be = _shown(wanted.get(key))
            yield f"{name}: {key} is {_shown(found.get(key))}, and should be {should_be}"


def _of_new(
    kind: str,
    wanted: Sequence[Record],
    found: Sequence[Record],
    known: frozenset[str],
    loose: Looseness,
) -> Iterator[str]:
    """Pair made records by what they say; what is left over on either side is a difference."""
    noun = kind.removesuffix("s")
    missing = list(wanted)
    unasked = []
    for record in found:
        key = _says(kind, record, known, loose)
        same = next((w for w in missing if _says(kind, w, known, loose) == key), None)
        if same is None:
            unasked.append(record)
            continue
        missing.remove(same)
        for word in loose.missing(kind, record):
            yield f"{record['id']}: its text does not contain {word!r}"
    if len(missing) == len(unasked) == 1:
        free = {name for name in missing[0] if loose.is_free(kind, name)}
        ours = {name: value for name, value in missing[0].items() if name not in free}
        theirs = {name: value for name, value in unasked[0].items() if name not in free}
        yield from _fields(str(unasked[0]["id"]), ours, theirs, known)
        return
    yield from (f"missing {noun}: {_summary(record)}" for record in missing)
    yield from (f"{noun} that was not asked for: {_summary(record)}" for record in unasked)


def _made(before: Mapping[str, Record], after: Mapping[str, Record]) -> list[Record]:
    return [record for record_id, record in after.items() if record_id not in before]


def _says(kind: str, record: Record, known: frozenset[str], loose: Looseness) -> dict[str, object]:
    return {
        key: _value(key, record, known)
        for key in record
        if key != "id" and not loose.is_free(kind, key)
    }


def _value(key: str, record: Record, known: frozenset[str]) -> object:
    value: Any = record.get(key)
    if value is None:
        return None
    if key in _LISTS:
        return sorted({str(each).casefold() for each in value})
    if key in _REFERENCES:
        return value if value in known else _NEW
    if key == "phone":
        return re.sub(r"[^\d+]", "", str(value))
    return _plain(value) if isinstance(value, str) else value


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).strip(_EDGES)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}…"


def _summary(record: Record) -> str:
    names = ("title", "start", "name", "email", "to", "subject", "body")
    return ", ".join(f"{name} {_shown(record[name])}" for name in names if name in record)
