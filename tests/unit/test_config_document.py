"""YAML as people write it, and where every key stands."""

import pytest

from nemo_gym.config.document import Document, parse_document, parse_value
from nemo_gym.errors import ConfigMistake


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1.5", 1.5),
        ("-.5e2", -50.0),
        ("3", 3),
        ("0x1f", 31),
        ("007", "007"),
        ("12:30:45", "12:30:45"),
        ("2026-01-31", "2026-01-31"),
        ("true", True),
        ("no", False),
        ("~", None),
        ("null", None),
        ("", ""),
        ("  ", ""),
        ("gpt-4.1", "gpt-4.1"),
        ("http://h:1/v1", "http://h:1/v1"),
        ("'5'", "5"),
        ("[1, a]", [1, "a"]),
        ("{a: {b: 1}}", {"a": {"b": 1}}),
        ("1_000", 1000),
    ],
)
def test_a_value_is_read_as_the_field_reads_yaml(text: str, value: object) -> None:
    found = parse_value(text, "override x")

    assert found == value
    assert type(found) is type(value)


def test_every_key_knows_its_line() -> None:
    document = parse_document("a:\n  b: 1\n  c: [x,\n    y]\n\nd: 2\n", "f.yaml")

    assert document.place(("a",)) == "f.yaml:1"
    assert document.place(("a", "b")) == "f.yaml:2"
    assert document.place(("a", "c", "1")) == "f.yaml:4"
    assert document.place(("d",)) == "f.yaml:6"
    assert document.place(("a", "nowhere")) == "f.yaml:1"
    assert Document("f.yaml", {}).place(("x",)) == "f.yaml"


def test_keys_are_text_whatever_they_look_like() -> None:
    assert parse_document("1: a\non: b\n", "f").tree == {"1": "a", "on": "b"}


def test_an_anchor_and_a_merge_key_are_read() -> None:
    text = "base: &base {x: 1, y: 2}\nover:\n  <<: *base\n  y: 3\n"

    assert parse_document(text, "f").tree["over"] == {"x": 1, "y": 3}


def test_an_empty_file_is_an_empty_tree() -> None:
    assert parse_document("# only a comment\n", "f").tree == {}


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("a: [1, 2\nb: 3\n", "f.yaml:2, column 2", "not valid YAML"),
        ("a: 1\n  b: 2\n", "f.yaml:2, column 4", "not valid YAML"),
        ("a:\n\t- 1\n", "f.yaml:2, column 1", "not valid YAML"),
        ("a: 'x\n", "f.yaml:2, column 1", "not valid YAML"),
        ("a: *nobody\n", "f.yaml:1, column 4", "undefined alias"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2, column 1", "not valid YAML"),
        ("a: 1\nb: 2\na: 3\n", "f.yaml:1 and f.yaml:3", "a is given twice"),
        ("x: {k: 1, k: 2}\n", "f.yaml:1", "x.k is given twice"),
        ("- a\n- b\n", "f.yaml:1", "a list"),
        ("just text\n", "f.yaml:1", "a single value"),
        ("a: &a [*a]\n", "f.yaml:1, column 4", "alias that contains itself"),
        ("a: !!python/object:os.system {}\n", "f.yaml:1, column 4", "python/object:os.system"),
        ("a: !!binary aGk=\n", "f.yaml:1, column 4", "a value of type 'binary'"),
        ("? [a]\n: 1\n", "f.yaml:1, column 3", "a key that is not text"),
        ("a: !!int x\n", "f.yaml:1, column 4", "a number that is none"),
    ],
)
def test_a_malformed_file_is_one_mistake_with_its_place(text: str, where: str, says: str) -> None:
    with pytest.raises(ConfigMistake) as caught:
        parse_document(text, "f.yaml")

    assert caught.value.where is not None
    assert caught.value.where.startswith(where)
    assert says in caught.value.what
    assert caught.value.mend


def test_a_character_that_yaml_forbids_is_a_mistake() -> None:
    with pytest.raises(ConfigMistake, match="does not allow"):
        parse_document("a: \x00\n", "f.yaml")


def test_a_tab_is_answered_with_spaces() -> None:
    with pytest.raises(ConfigMistake) as caught:
        parse_document("a:\n\tb: 1\n", "f.yaml")

    assert "spaces, not tabs" in (caught.value.mend or "")


def test_aliases_within_aliases_are_refused_before_they_fill_the_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]

    with pytest.raises(ConfigMistake, match="too many values"):
        parse_document("\n".join(lines), "f.yaml")
