"""Whether a component's file is the one that this process runs."""

import subprocess
import sys
from pathlib import Path

from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint

_SCRIPT = """
from nemo_gym.server_utils import is_nemo_gym_fastapi_entrypoint
ANSWER = is_nemo_gym_fastapi_entrypoint(__file__)
print(ANSWER)
"""


def test_an_imported_file_is_not_the_one_that_runs() -> None:
    assert not is_nemo_gym_fastapi_entrypoint(__file__)


def test_a_script_is(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(_SCRIPT)

    done = subprocess.run(
        [sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert done.stdout == "True\n"


def test_what_a_script_imports_is_not(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(_SCRIPT)
    (tmp_path / "main.py").write_text("import app")

    done = subprocess.run(
        [sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert done.stdout == "False\n"
