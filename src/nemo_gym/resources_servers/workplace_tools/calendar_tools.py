"""The tools of the calendar."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from nemo_gym.resources_servers.workplace_tools.arguments import (
    Address,
    Arguments,
    Day,
    Moment,
    Text,
    addresses,
    days,
    given_fields,
    moment,
)
from nemo_gym.resources_servers.workplace_tools.workplace import (
    Record,
    ToolMistake,
    Workplace,
    words_in,
)

__all__ = ["CALENDAR_TOOLS"]

EventId = Annotated[str, Meta(description="Id of an event, as list_events shows it.")]
Attendees = Annotated[list[Address], Meta(description="Email addresses, without your own.")]


class ListEvents(Arguments, frozen=True, kw_only=True):
    """List events in order of time."""

    since: Day | None = None
    until: Annotated[str | None, Meta(description="Last date, YYYY-MM-DD, included.")] = None
    query: Annotated[
        str, Meta(description="Words that must all be in title, place, notes or attendees.")
    ] = ""


class CreateEvent(Arguments, frozen=True, kw_only=True):
    """Put an event into the calendar. Says which other events it overlaps."""

    title: Text
    start: Moment
    end: Moment
    attendees: Attendees = msgspec.field(default_factory=list)
    location: str = ""
    notes: str = ""


class UpdateEvent(Arguments, frozen=True, kw_only=True):
    """Change an event. Only what is given changes; a new start without an end keeps the length."""

    event_id: EventId
    title: Text | None = None
    start: Moment | None = None
    end: Moment | None = None
    location: str | None = None
    notes: str | None = None
    add_attendees: Attendees = msgspec.field(default_factory=list)
    remove_attendees: Attendees = msgspec.field(default_factory=list)


class CancelEvent(Arguments, frozen=True, kw_only=True):
    """Take an event out of the calendar."""

    event_id: EventId


def list_events(office: Workplace, asked: ListEvents) -> dict[str, Any]:
    """Return the events that begin within the dates."""
    since, until = days(asked.since, asked.until)
    found = [
        event
        for event in office.events.values()
        if since <= event["start"][:10] <= until
        and words_in(
            asked.query,
            [event["title"], event["location"], event["notes"], *event["attendees"]],
        )
    ]
    return {"events": sorted(found, key=lambda event: (event["start"], event["id"]))}


def create_event(office: Workplace, asked: CreateEvent) -> dict[str, Any]:
    """Add an event."""
    start, end = _span(asked.start, asked.end)
    content = {
        "title": asked.title,
        "start": start,
        "end": end,
        "location": asked.location,
        "attendees": addresses(asked.attendees),
        "notes": asked.notes,
    }
    return _with_overlaps(office, office.add("events", content), "created")


def update_event(office: Workplace, asked: UpdateEvent) -> dict[str, Any]:
    """Change an event."""
    event = office.get("events", asked.event_id)
    changes = given_fields(asked, "title", "location", "notes")
    if asked.start is not None or asked.end is not None:
        start = asked.start or event["start"]
        end = asked.end or _later(start, event["start"], event["end"])
        changes["start"], changes["end"] = _span(start, end)
    changes["attendees"] = _attendees(event, asked)
    if all(event[name] == value for name, value in changes.items()):
        raise ToolMistake(f"nothing in {asked.event_id} would change")
    return _with_overlaps(office, office.change("events", asked.event_id, changes), "updated")


def cancel_event(office: Workplace, asked: CancelEvent) -> dict[str, Any]:
    """Remove an event."""
    return {"cancelled": office.remove("events", asked.event_id)["id"]}


def _attendees(event: Record, asked: UpdateEvent) -> list[str]:
    leaving = addresses(asked.remove_attendees)
    for address in leaving:
        if address not in event["attendees"]:
            raise ToolMistake(f"{address} does not attend {asked.event_id}")
    staying = [address for address in event["attendees"] if address not in leaving]
    return list(dict.fromkeys([*staying, *addresses(asked.add_attendees)]))


def _span(start: str, end: str) -> tuple[str, str]:
    begins, ends = moment(start), moment(end)
    if ends <= begins:
        raise ToolMistake(f"the event would end at {ends}, not after its start at {begins}")
    return begins, ends


def _later(start: str, old_start: str, old_end: str) -> str:
    length = datetime.fromisoformat(old_end) - datetime.fromisoformat(old_start)
    return (datetime.fromisoformat(moment(start)) + length).isoformat(timespec="minutes")


def _with_overlaps(office: Workplace, event: Record, done: str) -> dict[str, Any]:
    overlaps = [
        other["id"]
        for other in office.events.values()
        if other["id"] != event["id"]
        and other["start"] < event["end"]
        and event["start"] < other["end"]
    ]
    return {done: event, "overlaps": overlaps}


CALENDAR_TOOLS: tuple[tuple[type[Arguments], Callable[..., Any]], ...] = (
    (ListEvents, list_events),
    (CreateEvent, create_event),
    (UpdateEvent, update_event),
    (CancelEvent, cancel_event),
)
