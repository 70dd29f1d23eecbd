"""What commands print: tables that fit a terminal, plain columns for a pipe, JSON for machines."""

import os
import shutil
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import click

from nemo_gym.cli.json_text import json_text
from nemo_gym.cli.printable import on_one_line, printable_json

__all__ = [
    "for_whoever_reads",
    "print_json",
    "print_stored_line",
    "print_table",
    "wants_colour",
]

_NARROWEST_DRAWN = 60
"""Columns of a terminal below which a drawn table would be letters under each other."""


@contextmanager
def for_whoever_reads() -> Generator[None]:
    """Print inside; a reader that has gone is no failure of what is reported."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def wants_colour() -> bool | None:
    """Say whether text may be coloured, as `click.echo` takes it; None: where it goes decides.

    False where the user says so (no-color.org), or the terminal can do no more than text.
    """
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return False if is_plain else None


def print_json(value: object, *, indent: int | None = 2) -> None:
    """Print one JSON document, in characters that standard output has and none that steer it."""
    plain = (sys.stdout.encoding or "ascii").lower() not in {"utf-8", "utf8"}
    click.echo(json_text(value, indent=indent, ascii_only=plain))


def print_stored_line(body: bytes, *, on_terminal: bool | None = None) -> None:
    """Print a line of a capture file, given without its end: its very bytes, but on a terminal.

    There it is shown with its control characters escaped. None asks standard output.
    """
    if sys.stdout.isatty() if on_terminal is None else on_terminal:
        click.echo(printable_json(body.decode("utf-8", "backslashreplace")))
    else:
        click.echo(body)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    title: str | None = None,
    right: Sequence[str] = (),
    drawn: bool | None = None,
) -> None:
    """Print rows under their columns; None is a dash. `right` names columns of numbers.

    Drawn to the width of a terminal; into a pipe, a file or a narrow terminal nothing is cut.
    `drawn` decides; None asks standard output.
    """
    texts = [["-" if cell is None else on_one_line(str(cell)) for cell in row] for row in rows]
    if drawn is None:
        wide_enough = shutil.get_terminal_size().columns >= _NARROWEST_DRAWN
        drawn = sys.stdout.isatty() and wide_enough
    if drawn:
        _print_drawn(columns, texts, title, right)
    else:
        _print_plain(columns, texts, title, right)


def _print_drawn(
    columns: Sequence[str], rows: list[list[str]], title: str | None, right: Sequence[str]
) -> None:
    # rich costs 60 ms to import: only a table on a terminal pays for it.
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        # Typed as a plain string by the checker; both are words that rich knows.
        justify = "right" if column in right else "left"
        table.add_column(column, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def _print_plain(
    columns: Sequence[str], rows: list[list[str]], title: str | None, right: Sequence[str]
) -> None:
    if title is not None:
        click.echo(title)
    lines = [list(columns), *rows]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    for line in lines:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())
