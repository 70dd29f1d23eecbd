"""Every mistake of a user says how to mend it: no message in the source goes without."""

import ast
from collections.abc import Iterator
from pathlib import Path

import nemo_gym
from nemo_gym import errors
from nemo_gym.errors import UserMistake

PACKAGE = Path(nemo_gym.__file__).parent
MISTAKES = {name for name in errors.__all__ if issubclass(getattr(errors, name), UserMistake)}
# What a child process says is a whole message already.
WHOLE = {"runtime/processes.py"}


def _without_remedy() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        place = str(path.relative_to(PACKAGE))
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in MISTAKES and "mend" not in {k.arg for k in node.keywords}:
                yield place


def test_every_mistake_says_how_to_mend_it() -> None:
    assert {"ConfigMistake", "InvalidRow", "OutputUnusable"} <= MISTAKES
    assert set(_without_remedy()) == WHOLE
