"""Tables: whole in a pipe, drawn on a terminal, and never read as markup."""

import io
import json
import sys

import pytest

from nemo_gym.cli.output import print_json, print_table

COLUMNS = ["name", "calls", "note"]
ROWS = [["mcqa", 12, None], ["a_long_name", 3, "[red]not a colour[/red] " + "x" * 200]]


def test_a_pipe_gets_every_cell_whole_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, ROWS, title="servers", right=["calls"], drawn=False)

    assert capsys.readouterr().out.splitlines() == [
        "servers",
        "name         calls  note",
        "mcqa            12  -",
        "a_long_name      3  [red]not a colour[/red] " + "x" * 200,
    ]


def test_a_terminal_gets_the_same_cells_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, ROWS, title="servers", right=["calls"], drawn=True)
    out = capsys.readouterr().out

    for text in ("servers", "name", "mcqa", "12", "a_long_name", "[red]not a colour[/red]"):
        assert text in out
    assert out.count("x") == 200


def test_json_is_one_document_in_the_letters_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"ä": [1, None]})
    out = capsys.readouterr().out

    assert json.loads(out) == {"ä": [1, None]}
    assert "ä" in out


@pytest.mark.parametrize(("columns", "is_drawn"), [(20, False), (100, True)])
def test_a_terminal_too_narrow_for_a_drawing_gets_plain_lines(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
    is_drawn: bool,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    print_table(COLUMNS, [["mcqa", 12, None]])

    assert ("─" in capsys.readouterr().out) is is_drawn


def test_json_keeps_to_the_characters_that_the_output_has(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", narrow)

    print_json({"name": "→"})

    narrow.seek(0)
    assert json.loads(narrow.read()) == {"name": "→"}
