r"""Controls of a terminal are shown and not obeyed; in JSON they stay the same value."""

import json
import unicodedata

import pytest

from nemo_gym.cli.json_text import json_text
from nemo_gym.cli.output import print_stored_line, print_table
from nemo_gym.cli.printable import on_one_line, printable, printable_json

# Backwards, so that no two halves of surrogate pairs meet and become one character.
EVERY_BMP_CHARACTER = "".join(map(chr, reversed(range(0x10000))))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("\x1b[31mred", r"\x1b[31mred", id="colour"),
        pytest.param("\x1b]52;c;eA==\x07", r"\x1b]52;c;eA==\x07", id="clipboard"),
        pytest.param("\x9b2J", r"\x9b2J", id="C1"),
        pytest.param("a\x00b\x7f", r"a\x00b\x7f", id="NUL-and-DEL"),
        pytest.param("a\rb", r"a\rb", id="carriage-return"),
        pytest.param("half \ud83d", r"half \ud83d", id="half-a-pair"),
        pytest.param("\u202egnp.exe\u2066", r"\u202egnp.exe\u2066", id="turned-around"),
        pytest.param("a\tb\nc — ä 😀", "a\tb\nc — ä 😀", id="what-is-no-control"),
    ],
)
def test_controls_are_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_no_control_is_left_of_any_character() -> None:
    shown = printable(EVERY_BMP_CHARACTER)
    turning = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}  # UAX #9, 2.1 to 2.5

    assert {c for c in shown if unicodedata.category(c) in {"Cc", "Cs"}} == {"\n", "\t"}
    assert not {c for c in shown if unicodedata.bidirectional(c) in turning}


def test_a_name_keeps_to_its_line() -> None:
    assert on_one_line("a\nb\x07") == r"a\nb\x07"


@pytest.mark.parametrize("ascii_only", [True, False])
def test_json_holds_the_same_value_without_controls(ascii_only: bool) -> None:
    text = json_text({EVERY_BMP_CHARACTER: EVERY_BMP_CHARACTER}, ascii_only=ascii_only)
    left = {c for c in text if unicodedata.category(c) in {"Cc", "Cs"}}

    assert left == {"\n"}
    assert json.loads(text) == {EVERY_BMP_CHARACTER: EVERY_BMP_CHARACTER}
    assert printable_json(text) == text


def test_json_nested_deeply_takes_no_more_room_than_the_value() -> None:
    deep: object = list(range(1000))
    for _ in range(300):
        deep = [deep]

    assert json_text(deep) == json.dumps(deep)
    assert json_text([[1]]) == json.dumps([[1]], indent=2)


def test_json_nested_too_deeply_for_an_encoder_is_written_whole() -> None:
    given = '{"a": [], "b": {}, "ä\\u009b": [1, 2.5, null, true, "\\ud800"]}'
    deep: object = json.loads(given)
    for _ in range(50_000):
        deep = {"x": [0, deep]}
    text = json_text(deep)

    assert text == '{"x": [0, ' * 50_000 + given + "]}" * 50_000


def test_a_stored_line_is_escaped_on_a_terminal_only(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    line = b'{"said": "\x7f\xc2\x9b2J \xff"}\x1b'
    print_stored_line(line, on_terminal=True)
    print_stored_line(line, on_terminal=False)

    shown, kept = capsysbinary.readouterr().out.splitlines()
    assert shown == rb'{"said": "\u007f\u009b2J \xff"}\u001b'
    assert kept == line


def test_a_cell_of_a_table_keeps_to_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name"], [["a\nb\x1b[31m"]], drawn=False)

    assert capsys.readouterr().out == "name\na\\nb\\x1b[31m\n"
