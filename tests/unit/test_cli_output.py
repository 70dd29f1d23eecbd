"""Tables: whole in a pipe, drawn on a terminal, and never read as markup."""

import json

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
