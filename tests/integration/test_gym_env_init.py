"""`gym env init`: what it writes runs as it stands, in a folder of the user's."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nemo_gym.config.load import ConfigRequest, check_run_config
from support.gym_command import gym

MODEL = """\
policy_model:
  responses_api_models:
    some_model: {entrypoint: app.py}
"""


def test_a_new_environment_passes_its_own_tests_with_plain_pytest(tmp_path: Path) -> None:
    # In a project that configures pytest for plugins which this environment does not need.
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --strict-config\nno_such_option = 1\n"
    )
    made = gym("env", "init", "word_count", cwd=tmp_path)
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "resources_servers/word_count"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert made.code == 0, made.err
    assert tested.returncode == 0, tested.stdout
    assert "passed" in tested.stdout
    assert "python -m pytest resources_servers/word_count" in made.out
    assert "--agent word_count_simple_agent" in made.out


@pytest.mark.parametrize("name", ["class", "1st", "two words", "../up", ""])
def test_a_name_that_cannot_be_imported_is_refused(tmp_path: Path, name: str) -> None:
    made = gym("env", "init", name, cwd=tmp_path)

    assert made.code == 2
    assert f"{name!r} cannot be the name of an environment" in made.err
    assert list(tmp_path.iterdir()) == []


def test_a_new_environment_has_every_part_of_a_component(tmp_path: Path) -> None:
    gym("env", "init", "sums", cwd=tmp_path)
    folder = tmp_path / "resources_servers" / "sums"
    rows = (folder / "data/example.jsonl").read_text().splitlines()

    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {
        "README.md",
        "app.py",
        "configs/sums.yaml",
        "data/example.jsonl",
        "pytest.ini",
        "tests/test_app.py",
    }
    assert len(rows) == 5
    for row in map(json.loads, rows):
        assert row["responses_create_params"]["tools"][0]["name"] == "add"
    assert "$" not in (folder / "app.py").read_text()


def test_a_new_environment_has_a_right_configuration_with_an_agent_bound_to_it(
    tmp_path: Path,
) -> None:
    gym("env", "init", "sums", cwd=tmp_path)
    model = tmp_path / "responses_api_models" / "some_model"
    (model / "configs").mkdir(parents=True)
    (model / "configs" / "some_model.yaml").write_text(MODEL)
    (model / "app.py").touch()
    request = ConfigRequest(
        resources_servers=("sums",), model_types=("some_model",), working_dir=tmp_path
    )

    assert check_run_config(request) == ()


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    gym("env", "init", "sums", cwd=tmp_path)
    app = tmp_path / "resources_servers" / "sums" / "app.py"
    app.write_text("# mine")
    again = gym("env", "init", "sums", cwd=tmp_path)

    assert again.code == 2
    assert "exists already" in again.err
    assert app.read_text() == "# mine"


def test_a_place_that_cannot_be_written_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = gym("env", "init", "sums", "--dir", "file", cwd=tmp_path)

    assert ended.code == 2
    assert "cannot be written" in ended.err


def test_the_next_commands_fit_the_place_that_was_chosen(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    ended = gym("env", "init", "sums", "--dir", "mine", cwd=tmp_path)

    assert "--search-dir mine" in ended.out
    assert "--input mine/resources_servers/sums/data/example.jsonl" in ended.out
