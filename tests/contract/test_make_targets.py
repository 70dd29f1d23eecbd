"""What `make` offers: every target is explained, and none is silent while it sets things up."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TARGETS = ("demo", "test", "check", "docs", "bench")


def _make(*arguments: str) -> str:
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not here")
    done = subprocess.run(
        [make, "--no-print-directory", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_help_names_every_target() -> None:
    assert [line.split()[1] for line in _make("help").splitlines()] == list(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_setting_up_says_what_it_does_before_it_does_it(target: str) -> None:
    commands = _make("--dry-run", "--always-make", target).splitlines()
    steps = [words for line in commands if (words := line.split()) and "install" in words]

    assert "Setting up" in commands[1]
    assert len(steps) >= 3
    assert not any({"-q", "--quiet", "-qq"} & set(words) for words in steps)
