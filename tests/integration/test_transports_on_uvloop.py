"""The tests of the transports once more on uvloop, which servers run on."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FILES = (
    "test_http_transport.py",
    "test_http_connect.py",
    "test_in_process_transport.py",
    "test_stepping_over_sockets.py",
)


def test_the_transports_keep_their_promises_on_uvloop() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "support.uvloop_loops", "-p"]
    command += ["no:cacheprovider", *(str(HERE / name) for name in FILES)]

    done = subprocess.run(
        command,
        check=False,
        cwd=HERE.parent.parent,
        env={"PYTHONPATH": "tests"},
        text=True,
        capture_output=True,
    )

    assert done.returncode == 0, done.stdout
    assert "[uvloop" in done.stdout or " passed" in done.stdout
