"""The files of a new environment: a name in, paths and texts out. No I/O but reading templates."""

import json
import keyword
import re
from collections.abc import Mapping
from importlib.resources import files
from string import Template

from nemo_gym.errors import UserMistake

__all__ = ["NAME_RULE", "environment_files"]

NAME_RULE = (
    "use lower-case letters, digits and '_', beginning with a letter, like 'word_count', "
    "and no word of the Python language"
)

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_TEMPLATES = {
    "README.md": "README.md.tmpl",
    "app.py": "app.py.tmpl",
    "configs/{name}.yaml": "config.yaml.tmpl",
    "pytest.ini": "pytest.ini.tmpl",
    "tests/test_app.py": "test_app.py.tmpl",
}
_SUMS: tuple[tuple[int, ...], ...] = ((5, 7), (12, 30), (8, 15, 4), (104, 96), (17, 25, 33, 41))


def environment_files(name: str) -> Mapping[str, str]:
    """Return the text of every file of the environment `name` by its path in the folder."""
    if _NAME.fullmatch(name) is None or keyword.iskeyword(name):
        raise UserMistake(f"{name!r} cannot be the name of an environment", mend=NAME_RULE)
    words = {
        "name": name,
        "class_name": "".join(part.capitalize() for part in name.split("_")),
        "title": name.replace("_", " ").capitalize(),
    }
    folder = files("nemo_gym.cli") / "templates" / "resources_server"
    written = {
        path.format(name=name): Template((folder / source).read_text("utf-8")).substitute(words)
        for path, source in _TEMPLATES.items()
    }
    rows = (json.dumps(_row(numbers)) + "\n" for numbers in _SUMS)
    return {**written, "data/example.jsonl": "".join(rows)}


def _row(numbers: tuple[int, ...]) -> dict[str, object]:
    """Return one task: the request to the model, and what the verifier needs."""
    number = {"type": "number"}
    tool = {
        "type": "function",
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": number, "b": number},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
        "strict": True,
    }
    question = f"What is {' + '.join(map(str, numbers))}? End with 'Answer: ' and the number."
    return {
        "responses_create_params": {
            "input": [{"role": "user", "content": question}],
            "tools": [tool],
        },
        "expected_answer": sum(numbers),
    }
