"""Finding components and files: which root wins, what a mistyped name is told."""

from pathlib import Path

import pytest

from nemo_gym.config.components import (
    builtin_root,
    component_roots,
    config_of,
    find_component,
    list_components,
    resolve_input_path,
    root_of_config,
)
from nemo_gym.errors import ConfigMistake, UnknownComponent, UserMistake
from support.config_files import write_root

KIND = "resources_servers"


def test_roots_are_searched_in_the_documented_order(tmp_path: Path) -> None:
    one, two, here = (tmp_path / name for name in ("one", "two", "here"))
    for folder in (one, two, here):
        folder.mkdir()

    assert component_roots([one, Path("../two")], here) == (one, two, here, builtin_root())


def test_a_component_in_two_roots_is_the_one_of_the_first(tmp_path: Path) -> None:
    roots = (write_root(tmp_path / "a"), write_root(tmp_path / "b"))

    assert find_component(roots, KIND, "mcqa").root == tmp_path / "a"
    assert [c.root for c in list_components(roots, KIND)] == [tmp_path / "a"]


def test_folders_that_are_no_components_are_not_listed(tmp_path: Path) -> None:
    root = write_root(tmp_path)
    for name in ("__pycache__", ".hidden", "empty"):
        (root / KIND / name).mkdir()
    (root / KIND / "__pycache__" / "app.py").touch()

    assert [c.name for c in list_components([root], KIND)] == ["mcqa"]


@pytest.mark.parametrize("name", ["mcqb", "", ".", "..", "../a", "/etc", "x/y"])
def test_a_name_that_is_no_component_is_a_mistake_of_the_user(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownComponent):
        find_component([write_root(tmp_path)], KIND, name)


@pytest.mark.parametrize(
    ("readme", "description"),
    [
        ("# mcqa\n\nMultiple choice.\n", "Multiple choice."),
        ("# Multiple choice\n\nMore.\n", "Multiple choice"),
        ("\n\n# MCQA!\n## Questions\n", "Questions"),
        ("# mcqa\nOne line,\nthen another. And more.\n\nElse.", "One line, then another."),
        (
            "# mcqa\n\nRuns [any model](x.md), **all** of `a.b`\n\n    gym",
            "Runs any model, all of a.b",
        ),
        ("# mcqa\n\nVersion 1.5 is here! Yes.\n", "Version 1.5 is here!"),
        ("", ""),
        (None, ""),
    ],
)
def test_a_description_is_what_the_readme_says_first(
    tmp_path: Path, readme: str | None, description: str
) -> None:
    component = find_component([write_root(tmp_path)], KIND, "mcqa")
    if readme is not None:
        (component.folder / "README.md").write_text(readme)

    assert component.description == description


def test_the_configuration_of_a_component_is_the_one_of_its_name(tmp_path: Path) -> None:
    component = find_component([write_root(tmp_path)], KIND, "mcqa")
    own = component.folder / "configs" / "mcqa.yaml"
    (own.parent / "other.yaml").touch()

    assert config_of(component) == own
    own.unlink()
    assert config_of(component) == own.parent / "other.yaml"


def test_a_choice_between_configurations_is_left_to_the_user(tmp_path: Path) -> None:
    component = find_component([write_root(tmp_path)], KIND, "mcqa")
    (component.folder / "configs" / "mcqa.yaml").unlink()
    for name in ("easy.yaml", "hard.yaml"):
        (component.folder / "configs" / name).touch()

    with pytest.raises(ConfigMistake) as caught:
        config_of(component)
    assert "--config resources_servers/mcqa/configs/easy.yaml" in (caught.value.mend or "")


def test_the_root_of_a_configuration_file_is_where_its_component_lies(tmp_path: Path) -> None:
    assert root_of_config(tmp_path / KIND / "x" / "configs" / "x.yaml") == tmp_path
    assert root_of_config(tmp_path / "x.yaml") is None


def test_an_input_in_the_working_directory_goes_before_a_built_in_one(tmp_path: Path) -> None:
    built_in = builtin_root() / KIND / "__init__.py"
    text = f"{KIND}/__init__.py"

    assert resolve_input_path(text, working_dir=tmp_path) == built_in
    (tmp_path / KIND).mkdir()
    (tmp_path / text).touch()
    assert resolve_input_path(text, working_dir=tmp_path) == tmp_path / text
    assert resolve_input_path(str(built_in), working_dir=tmp_path) == built_in


def test_an_input_that_is_not_there_names_every_place_looked_in(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").touch()
    with pytest.raises(UserMistake) as caught:
        resolve_input_path("task.jsonl", working_dir=tmp_path)

    assert "did you mean 'tasks.jsonl'?" in caught.value.what
    assert str(tmp_path / "task.jsonl") in (caught.value.where or "")
    assert str(builtin_root() / "task.jsonl") in (caught.value.where or "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (".", "is a directory, not a file"),
        ("/dev/null", "is a pipe or device, not a file"),
        ("x" * 300, "there is no file"),
    ],
)
def test_an_input_that_is_no_file_is_told_what_it_is(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserMistake, match=said):
        resolve_input_path(text, working_dir=tmp_path)
