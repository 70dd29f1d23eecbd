"""References by example: each form, what it stands for, and what is said of a wrong one."""

from pathlib import Path

import pytest

from nemo_gym.config.document import Document, read_document
from nemo_gym.config.merge import Layers
from nemo_gym.config.overrides import apply_override, parse_override
from nemo_gym.config.problems import Problems
from nemo_gym.config.references import Resolved, resolve
from nemo_gym.errors import ConfigMistake

ENVIRON = {"PORT": "8000", "LIST": "[1, 2]", "BROKEN": "[1", "EMPTY": ""}
TREE: dict[str, object] = {
    "host": "h",
    "port": 80,
    "which": "port",
    "names": ["zero", "one", {"deep": 3}],
    "section": {"a": 1, "b": "${.a}", "c": {"d": "${..a}"}},
    "alias": "${section}",
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${port}", 80),
        ("http://${host}:${port}/v1", "http://h:80/v1"),
        ("${${which}}", 80),
        ("${names.1}", "one"),
        ("${names[1]}", "one"),
        ("${names[2].deep}", 3),
        ("${names}", ["zero", "one", {"deep": 3}]),
        ("${section}", {"a": 1, "b": 1, "c": {"d": 1}}),
        ("${alias.c.d}", 1),
        ("${ port }", 80),
        ("${oc.env:PORT}", "8000"),
        ("${oc.env:EMPTY}", ""),
        ("${oc.env:NOPE,9}", "9"),
        ("${oc.env:NOPE, 'a, b'}", "a, b"),
        ("${oc.env:NOPE,null}", None),
        ('${oc.env:NOPE,"null"}', "null"),
        ("${oc.env:NOPE,${oc.env:PORT}}", "8000"),
        ("${oc.decode:${oc.env:PORT}}", 8000),
        ("${oc.decode:${oc.env:LIST}}", [1, 2]),
        ("${oc.decode:${port}}", 80),
        ("${oc.select:nope}", None),
        ("${oc.select:nope,[1, {a: 2}]}", [1, {"a": 2}]),
        ("${oc.select:alias.a,5}", 1),
        ("\\${port}", "${port}"),
        ("\\\\${port}", "\\80"),
        ("$port and {port}", "$port and {port}"),
    ],
)
def test_a_reference_stands_for_its_value(text: str, value: object) -> None:
    resolved, problems = _resolve({**TREE, "x": text})

    assert problems.found == []
    assert resolved.tree["x"] == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("${}", "names no key"),
        ("${a..b}", "names no key"),
        ("${port", "no closing '}'"),
        ("${....x}", "names no key"),
        ("${oc.env:}", "takes 1 to 2 arguments"),
        ("${oc.env:A,b,c}", "takes 1 to 2 arguments"),
        ("${oc.decode:a,b}", "takes one argument"),
        ("${oc.decode:${oc.env:BROKEN}}", "not valid YAML"),
        ("${oc.env:PROT}", "PROT is not set (did you mean 'PORT'?)"),
        ("${mine:1}", "'${mine:…}'"),
    ],
)
def test_a_wrong_reference_is_one_mistake_at_its_place(text: str, says: str) -> None:
    _, problems = _resolve({**TREE, "x": text})

    (mistake,) = problems.found
    assert says in mistake.what
    assert mistake.where == "file.yaml (x)"
    assert mistake.mend


_GROWING: dict[str, tuple[dict[str, object], str]] = {
    "texts": (
        {"r0": "x" * 10, **{f"r{n}": f"${{r{n - 1}}}" * 2 for n in range(1, 40)}},
        "longer than 10,000,000 characters",
    ),
    "lists": (
        {"r0": [1, 2]} | {f"r{n}": [f"${{r{n - 1}}}"] * 2 for n in range(1, 40)},
        "larger than 500,000 values",
    ),
    "a chain": (
        {"r0": 1} | {f"r{n}": f"${{r{n - 1}}}" for n in reversed(range(1, 2000))},
        "too deep to follow",
    ),
    "nested": ({"x": "${a" * 500 + "}" * 500}, "too deep to follow"),
}


@pytest.mark.parametrize("case", _GROWING)
def test_references_that_grow_without_bounds_are_a_mistake_in_seconds(case: str) -> None:
    tree, says = _GROWING[case]

    _, problems = _resolve(tree)

    assert says in problems.found[0].what


def test_a_missing_key_is_wanted_by_every_place_that_names_it() -> None:
    resolved, problems = _resolve({"x": "${gone}", "y": {"z": "${gone}"}})

    assert problems.found == []
    assert resolved.wanted == {"gone": ("file.yaml (x)", "file.yaml (y.z)")}


def test_a_key_missing_beside_its_reference_is_missing_and_no_ring() -> None:
    resolved, problems = _resolve({"b": {"b": "${b.a.a}", "c": "${oc.select:b.a.a,7}"}})

    assert problems.found == []
    assert list(resolved.wanted) == ["b.a.a"]
    assert resolved.tree == {"b": {"b": None, "c": 7}}


def test_keys_that_references_name_are_known_to_be_read() -> None:
    resolved, _ = _resolve({**TREE, "x": "${names.1}${oc.select:nope,1}"})

    assert {("names", "1"), ("nope",), ("section", "a")} <= resolved.referenced


def test_one_wrong_value_does_not_hide_another() -> None:
    _, problems = _resolve({"a": {"b": "${oc.env:ONE}", "c": "${oc.env:TWO}"}})

    assert [mistake.what.split()[3] for mistake in problems.found] == ["ONE", "TWO"]


def test_overrides_reach_into_lists() -> None:
    layers = Layers()
    layers.add(Document("f", {"a": [1, {"b": 2}]}))
    for text in ("a[1].b=3", "a.0=9", "++a.1.c.d=4", "~a.0"):
        apply_override(layers, parse_override(text))

    assert layers.tree == {"a": [{"b": 3, "c": {"d": 4}}]}
    with pytest.raises(ConfigMistake, match="a is a list of 1"):
        apply_override(layers, parse_override("++a.5=1"))


def test_a_file_that_cannot_be_read_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes("a: 1\nb: ä\n".encode("latin-1"))
    cases = {"latin.yaml": "not UTF-8", "none.yaml": "no file none.yaml", ".": "cannot be read"}

    for name, says in cases.items():
        with pytest.raises(ConfigMistake, match=says):
            read_document(tmp_path / name, name)


def _resolve(tree: dict[str, object]) -> tuple[Resolved, Problems]:
    layers, problems = Layers(), Problems()
    layers.add(Document("file.yaml", tree))
    return resolve(layers, ENVIRON, problems), problems
