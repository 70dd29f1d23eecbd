"""The page that builds an environment from nothing, followed as it is written."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "build-an-environment.md"
_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def test_the_page_works_as_typed(tmp_path: Path) -> None:
    with _provider("It occurs 3 times.") as origin:
        ran = [_follow(kind, title, text, tmp_path, origin) for kind, title, text in _blocks()]
    out = "".join(ran)
    written = (tmp_path / "results/letter_count.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in written]

    assert "5 resources_servers/letter_count/data/example.jsonl" in out
    assert "passed" in out
    assert "ok: 3 servers (letter_count, letter_count_simple_agent, policy_model)" in out
    assert len(rows) == 10
    # Right for strawberry and banana; the tool was never asked.
    assert {row["word"]: (row["reward"], row["spelled"]) for row in rows} == {
        "strawberry": (0.5, 0),
        "banana": (0.5, 0),
        "mississippi": (0.0, 0),
        "queue": (0.0, 0),
        "rhythm": (0.0, 0),
    }
    assert "0.200" in out


def _blocks() -> Iterator[tuple[str, str, str]]:
    for found in _BLOCK.finditer(PAGE.read_text()):
        yield found[1], found[2] or "", found[3]


def _follow(kind: str, title: str, text: str, folder: Path, origin: str) -> str:
    """Write a file that has a title, with a provider of ours; run commands."""
    if title:
        (folder / title).parent.mkdir(parents=True, exist_ok=True)
        (folder / title).write_text(text.replace("https://api.openai.com", origin))
        return ""
    assert kind == "bash", kind
    done = subprocess.run(
        ["/bin/bash", "-euc", text],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(folder / "state"),
            "OPENAI_API_KEY": "sk-not-a-key",
            "PYTEST_ADDOPTS": "-p no:asyncio",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@contextmanager
def _provider(text: str) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "support.provider", "--text", text],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        try:
            yield json.loads(process.stdout.readline())["origin"]
        finally:
            process.terminate()
            process.wait(timeout=10)
