"""`gym eval run` on a scripted agent, in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from support.gym_command import Ended

__all__ = ["FIXTURES", "ROW", "environ_of", "eval_arguments", "eval_run", "start_eval", "task_file"]

FIXTURES = Path(__file__).parent.parent / "fixtures" / "rollouts"
ROW: dict[str, Any] = {"responses_create_params": {"input": "hi"}}


def task_file(folder: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write rows for the scripted agent."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps({**ROW, **row}) + "\n" for row in rows))
    return path


def eval_arguments(folder: Path, *more: str) -> list[str]:
    """Return a command that runs `rows.jsonl` of a folder into its `x.jsonl`."""
    return [
        *("eval", "run", "--agent-type", "scripted_agent", "--search-dir", str(FIXTURES)),
        *("--agent", "scripted", "--input", "rows.jsonl", "--output", "x.jsonl"),
        *more,
    ]


def environ_of(folder: Path) -> dict[str, str]:
    """Return an environment whose state directory is in `folder`."""
    return {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "COLUMNS": "120"}


def start_eval(
    folder: Path, *more: str, preexec: Callable[[], None] | None = None
) -> subprocess.Popen[str]:
    """Start the command; the caller waits for it."""
    return subprocess.Popen(
        [sys.executable, "-m", "nemo_gym", *eval_arguments(folder, *more)],
        cwd=folder,
        env=environ_of(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=preexec,  # noqa: PLW1509 - limits of the child, set before it runs
    )


def eval_run(folder: Path, *more: str, preexec: Callable[[], None] | None = None) -> Ended:
    """Run the command to its end."""
    process = start_eval(folder, *more, preexec=preexec)
    out, err = process.communicate(timeout=60)
    return Ended(process.returncode, out, err)
