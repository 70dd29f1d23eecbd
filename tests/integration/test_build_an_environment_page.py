"""The page that builds an environment from nothing, followed as it is written."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "build-an-environment.md"
_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def test_every_step_up_to_the_run_works_as_typed(tmp_path: Path) -> None:
    ran = [_follow(kind, title, text, tmp_path) for kind, title, text in _blocks()]

    assert any("passed" in out for out in ran)
    assert any("ok: 3 servers" in out for out in ran)
    assert any(out.startswith("5 ") for out in ran)


def _blocks() -> Iterator[tuple[str, str, str]]:
    for found in _BLOCK.finditer(PAGE.read_text()):
        yield found[1], found[2] or "", found[3]


def _follow(kind: str, title: str, text: str, folder: Path) -> str:
    """Write a file that has a title; run commands, apart from the one that needs a provider."""
    if title:
        (folder / title).parent.mkdir(parents=True, exist_ok=True)
        (folder / title).write_text(text)
        return ""
    assert kind == "bash", kind
    commands = text.partition("gym eval run")[0]
    done = subprocess.run(
        ["/bin/bash", "-euc", commands],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OPENAI_API_KEY": "sk-not-a-key",
            "PYTEST_ADDOPTS": "-p no:asyncio",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
    return done.stdout
