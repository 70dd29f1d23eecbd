"""Arguments of the tools: one definition says what is checked and what a model is told."""

import re
from datetime import date, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from nemo_gym.resources_servers.workplace_tools.workplace import ToolMistake

__all__ = [
    "Address",
    "Arguments",
    "Day",
    "Moment",
    "Text",
    "addresses",
    "days",
    "given_fields",
    "moment",
]

Text = Annotated[str, Meta(min_length=1)]
Address = Annotated[str, Meta(description="An email address.")]
Moment = Annotated[str, Meta(description="Date and time as YYYY-MM-DDTHH:MM, local time.")]
Day = Annotated[str, Meta(description="A date as YYYY-MM-DD.")]

_ADDRESS = re.compile(r"[^\s@<>,;]+@[^\s@<>,;]+\.[^\s@<>,;]+")


class Arguments(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Arguments of one tool; the docstring of a subclass is what the model reads of it."""


def addresses(given: list[str]) -> list[str]:
    """Return addresses in lower case, each once; raises `ToolMistake` for what is none."""
    for text in given:
        if _ADDRESS.fullmatch(text.strip()) is None:
            raise ToolMistake(f"{text!r} is not an email address; find_contacts knows addresses")
    return list(dict.fromkeys(text.strip().lower() for text in given))


def moment(given: str) -> str:
    """Return a date and time to the minute; raises `ToolMistake`."""
    try:
        parsed = datetime.fromisoformat(given.strip())
    except ValueError:
        raise ToolMistake(f"{given!r} is not a time; write YYYY-MM-DDTHH:MM") from None
    if len(given.strip()) <= len("YYYY-MM-DD"):
        raise ToolMistake(f"{given!r} has no time of day; write YYYY-MM-DDTHH:MM")
    # An offset says nothing here: everybody in this office is in one place.
    return parsed.replace(tzinfo=None).isoformat(timespec="minutes")


def days(since: str | None, until: str | None) -> tuple[str, str]:
    """Return a first and a last date, nothing being without end; raises `ToolMistake`."""
    return _day(since) if since else "", _day(until) if until else "9999-12-31"


def _day(given: str) -> str:
    try:
        return date.fromisoformat(given.strip()[:10]).isoformat()
    except ValueError:
        raise ToolMistake(f"{given!r} is not a date; write YYYY-MM-DD") from None


def given_fields(arguments: Arguments, *names: str) -> dict[str, Any]:
    """Return those of the named arguments that were given."""
    values = {name: getattr(arguments, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}
