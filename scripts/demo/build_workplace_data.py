"""Write the dataset rows of `workplace_tools` from the tasks in `workplace_tasks.yaml`.

python scripts/demo/build_workplace_data.py          writes data/example.jsonl
python scripts/demo/build_workplace_data.py --check  says whether it is what would be written
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from nemo_gym.resources_servers.workplace_tools.toolbox import tool_schemas

__all__ = ["rendered"]

_HERE = Path(__file__).resolve().parent
_DATA = _HERE.parents[1] / "src" / "nemo_gym" / "resources_servers" / "workplace_tools" / "data"
_INSTRUCTIONS = (
    "You are the assistant of Dana Reyes (dana.reyes@northwind.example) and work on her mailbox, "
    "calendar and contacts with tools. It is Monday, 9 March 2026, 09:00. Do exactly what she asks "
    "and change nothing else. Look things up before you ask back; when all is done, say so in one "
    "sentence."
)


def rendered() -> dict[str, str]:
    """Return the text of every dataset file by its name."""
    tasks = yaml.safe_load((_HERE / "workplace_tasks.yaml").read_text("utf-8"))
    tools = tool_schemas()
    lines = (json.dumps(_row(task, tools), ensure_ascii=False) for task in tasks)
    return {"example.jsonl": "".join(f"{line}\n" for line in lines)}


def _row(task: Mapping[str, Any], tools: list[dict[str, Any]]) -> dict[str, Any]:
    actions = [
        {"tool": tool, "arguments": arguments}
        for action in task["actions"]
        for tool, arguments in action.items()
    ]
    metadata: dict[str, Any] = {"expected_actions": actions}
    if "free_text" in task:
        metadata["free_text"] = task["free_text"]
    messages = [
        {"role": "system", "content": _INSTRUCTIONS},
        {"role": "user", "content": task["ask"]},
    ]
    return {
        "id": task["id"],
        "responses_create_params": {"input": messages, "tools": tools},
        "verifier_metadata": metadata,
        "category": task["category"],
    }


def main() -> int:
    """Write, or check with `--check`; return 1 where a file is not what it should be."""
    path = _DATA / "example.jsonl"
    text = rendered()["example.jsonl"]
    if "--check" in sys.argv[1:]:
        same = path.is_file() and path.read_text("utf-8") == text
        if not same:
            print(f"{path.name} is not what {Path(__file__).name} writes")
        return 0 if same else 1
    path.write_text(text, "utf-8")
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
