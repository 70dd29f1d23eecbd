"""What commands print: tables that fit a terminal, plain columns for a pipe, JSON for machines."""

import json
import sys
from collections.abc import Sequence

import click

__all__ = ["print_json", "print_table"]


def print_json(value: object) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    title: str | None = None,
    right: Sequence[str] = (),
    drawn: bool | None = None,
) -> None:
    """Print rows under their columns; None is a dash. `right` names columns of numbers.

    Drawn to the width of a terminal; into a pipe or a file nothing is cut or wrapped. `drawn`
    decides; None asks standard output.
    """
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty() if drawn is None else drawn:
        _print_drawn(columns, texts, title, right)
    else:
        _print_plain(columns, texts, title, right)


def _print_drawn(
    columns: Sequence[str], rows: list[list[str]], title: str | None, right: Sequence[str]
) -> None:
    # rich costs 60 ms to import: only a table on a terminal pays for it.
    from rich import box  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
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
