"""What is known of rows in, lines of a terminal out: numbers in units, columns that fit. Pure.

Where there is no room for all columns, those that matter least are left out, never cut.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = [
    "Column",
    "clock",
    "cut",
    "flowing",
    "milliseconds",
    "percent",
    "rate",
    "seconds",
    "size",
    "table",
]

T = TypeVar("T")

_LEAST_NAME = 14
_ROOM_FOR_MARGIN = 36


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column of numbers."""

    title: str
    wide: int
    """Its width where there is room, the gap before it included."""
    narrow: int
    """Its width where there is little."""
    worth: int
    """The column of the least worth is the first to be left out."""
    text: Callable[[T], str]


def table(
    title: str, name_width: int, columns: Sequence[Column[T]], width: int
) -> tuple[str, Callable[[str, T], str]]:
    """Return the line of titles, and what makes the line of a row from its name and the row."""
    shown = list(columns)
    roomy = name_width + sum(column.wide for column in shown) <= width
    while not roomy and len(shown) > 1 and _narrow(shown) + _LEAST_NAME > width:
        shown.remove(min(shown, key=lambda column: column.worth))
    widths = [column.wide if roomy else column.narrow for column in shown]
    named = name_width if roomy else max(1, width - sum(widths))

    def line(name: str, cells: Sequence[str]) -> str:
        pairs = zip(cells, widths, strict=True)
        # A number that is wider than its column pushes the next ones; it never runs into another.
        return f"{name[: named - 1]:<{named}}" + "".join(
            f" {cell:>{room - 1}}" for cell, room in pairs
        )

    def row(name: str, one: T) -> str:
        return line(name, [column.text(one) for column in shown])

    return line(title, [column.title for column in shown]), row


def _narrow(columns: Sequence[Column[T]]) -> int:
    return sum(column.narrow for column in columns)


def flowing(start: str, parts: Sequence[str], width: int) -> list[str]:
    """Return `parts` behind `start`, two blanks apart, on as many lines as that takes.

    Further lines begin as far to the right as the first, where there is room for that.
    """
    if width < _ROOM_FOR_MARGIN:
        start = f"{start.strip()} ".lstrip()
    indent = len(start) if width >= _ROOM_FOR_MARGIN else min(2, len(start))
    lines = [start]
    for number, part in enumerate(parts):
        if number == 0:
            lines[-1] += part
        elif len(lines[-1]) + 2 + len(part) <= width:
            lines[-1] += f"  {part}"
        else:
            lines.append(" " * indent + part)
    return lines


def cut(items: Sequence[T], room: int) -> tuple[Sequence[T], Sequence[T]]:
    """Return what is shown and what is only summed up, which takes a line too."""
    if len(items) <= room:
        return items, ()
    shown = max(0, room - 1)
    return items[:shown], items[shown:]


def clock(seconds: float | None) -> str:
    """Return hours, minutes and seconds."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def rate(value: float | None) -> str:
    """Return so many a second."""
    if value is None:
        return "-"
    if 0 < value < 1:
        return f"{value:.2f}"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """Return a time that is given in seconds."""
    return milliseconds(None if value is None else value * 1000, digits=0)


def milliseconds(value: float | None, *, digits: int = 1) -> str:
    """Return a time that is given in milliseconds; `digits` of those below a second."""
    if value is None:
        return "-"
    if round(value, digits) < 1000:
        return f"{value:,.{digits}f} ms"
    return f"{value / 1000:,.1f} s"


def percent(share: float | None) -> str:
    """Return a share of one."""
    return "-" if share is None else f"{share:.0%}"


def size(size_bytes: int | None) -> str:
    """Return a size in memory."""
    return "-" if size_bytes is None else f"{size_bytes / 2**20:,.0f} MB"
