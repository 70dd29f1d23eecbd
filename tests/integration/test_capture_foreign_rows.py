"""`gym capture` on rows that failed, or that others wrote: all is told, nothing is obeyed."""

import json
import os
import subprocess
import sys
from pathlib import Path

GYM = str(Path(sys.executable).parent / "gym")


def _gym(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [GYM, "capture", *arguments, "--dir", str(folder)],
        cwd=folder,
        env={**os.environ, "XDG_STATE_HOME": str(folder / "state")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _keep(folder: Path, *rows: object) -> None:
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    (folder / "0-0.capture.jsonl").write_text("".join(f"{line}\n" for line in lines))


def test_ls_as_json_counts_the_calls_that_failed(tmp_path: Path) -> None:
    failed = {"dialect": "chat", "error_category": "cancelled"}
    _keep(tmp_path, failed, failed, {"dialect": "chat"})
    listed = _gym("ls", "--json", folder=tmp_path)

    assert listed.returncode == 0, listed.stderr
    assert json.loads(listed.stdout)["errors"] == {"cancelled": 2}
