"""The data that comes with the environments is what its builders write."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts" / "demo"


@pytest.mark.parametrize("builder", ["build_mcqa_data.py", "build_workplace_data.py"])
def test_the_rows_are_those_of_the_questions_and_tasks(builder: str) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / builder), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
