"""The real `gym` command in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Ended", "gym"]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def gym(
    *arguments: str, cwd: Path, environ: Mapping[str, str] | None = None, timeout_s: float = 60
) -> Ended:
    """Run `gym` with arguments in a directory and wait for its end."""
    done = subprocess.run(
        [sys.executable, "-m", "nemo_gym", *arguments],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "100", **(environ or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)
