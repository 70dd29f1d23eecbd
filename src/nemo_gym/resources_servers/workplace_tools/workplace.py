"""The state of one rollout: mail, events and contacts of one person. No I/O, no clock.

Records are never changed in place: a tool puts a new one in the old one's place. So a copy of a
workplace costs three dictionaries, and what a rollout did is what is not the same any more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

__all__ = ["KINDS", "Record", "ToolMistake", "Workplace", "words_in"]

Record = Mapping[str, Any]
"""One email, event or contact; `id` is its key."""

KINDS: Final = ("emails", "events", "contacts")
_PREFIX: Final[Mapping[str, str]] = MappingProxyType(
    {"emails": "mail", "events": "event", "contacts": "contact"}
)
_NOUN: Final[Mapping[str, str]] = MappingProxyType(
    {"emails": "email", "events": "event", "contacts": "contact"}
)


class ToolMistake(Exception):
    """A tool was called in a way that cannot work; the model is told why and can mend it."""


@dataclass(slots=True)
class Workplace:
    """What one person has."""

    me: str
    """Address of that person."""
    now: str
    """Time at which everything happens, `YYYY-MM-DDTHH:MM`; it stands still."""
    emails: dict[str, Record] = field(default_factory=dict)
    events: dict[str, Record] = field(default_factory=dict)
    contacts: dict[str, Record] = field(default_factory=dict)
    highest: dict[str, int] = field(default_factory=dict)
    """Highest number that an id of each kind ever had: none is given twice."""

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> "Workplace":
        """Read `{"me", "now", "emails": [record, …], "events": […], "contacts": […]}`."""
        office = cls(tree["me"], tree["now"])
        for kind in KINDS:
            office.records(kind).update((record["id"], record) for record in tree.get(kind, ()))
        office.count()
        return office

    def copy(self) -> "Workplace":
        """Return a workplace that can go another way."""
        return replace(
            self,
            emails=dict(self.emails),
            events=dict(self.events),
            contacts=dict(self.contacts),
            highest=dict(self.highest),
        )

    def patched(self, patch: Mapping[str, Any]) -> "Workplace":
        """Return a copy with other records: by kind and id, None takes one away."""
        changed = self.copy()
        for kind in KINDS:
            records = changed.records(kind)
            for record_id, record in (patch.get(kind) or {}).items():
                if record is None:
                    records.pop(record_id, None)
                else:
                    records[record_id] = {**records.get(record_id, {}), **record, "id": record_id}
        changed.count()
        return changed

    def records(self, kind: str) -> dict[str, Record]:
        """Return the records of a kind by id."""
        found: dict[str, Record] = getattr(self, kind)
        return found

    def get(self, kind: str, record_id: str) -> Record:
        """Return one record; raises `ToolMistake` when there is none."""
        record = self.records(kind).get(record_id)
        if record is None:
            raise ToolMistake(
                f"there is no {_NOUN[kind]} {record_id!r}; ids look like {_PREFIX[kind]}-1"
            )
        return record

    def add(self, kind: str, content: Mapping[str, Any]) -> Record:
        """Put in a new record and return it with its id."""
        self.highest[kind] += 1
        record = {"id": f"{_PREFIX[kind]}-{self.highest[kind]}", **content}
        self.records(kind)[record["id"]] = record
        return record

    def change(self, kind: str, record_id: str, changes: Mapping[str, Any]) -> Record:
        """Change fields of a record and return it."""
        record = {**self.get(kind, record_id), **changes}
        self.records(kind)[record_id] = record
        return record

    def remove(self, kind: str, record_id: str) -> Record:
        """Take a record away and return it."""
        record = self.get(kind, record_id)
        del self.records(kind)[record_id]
        return record

    def count(self) -> None:
        """Note the highest id of each kind."""
        for kind in KINDS:
            numbers = map(_number, self.records(kind))
            self.highest[kind] = max(numbers, default=0)


def words_in(words: str, texts: Iterable[str]) -> bool:
    """Return whether every word is in one of the texts, in any case."""
    everything = "\n".join(texts).casefold()
    return all(word in everything for word in words.casefold().split())


def _number(record_id: str) -> int:
    number = record_id.rpartition("-")[2]
    return int(number) if number.isdigit() else 0
