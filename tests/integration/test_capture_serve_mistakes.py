"""`gym capture serve` with what cannot work: refused at start, with the option to blame."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def refused(tmp_path: Path, *arguments: str, key: bytes = b"") -> str:
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "nemo_gym", "capture", "serve", "--port", "0"),
            *("--upstream", "http://127.0.0.1:9/v1", *arguments),
        ],
        cwd=tmp_path,
        env={**os.environb, b"KEY": key},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Traceback" not in ended.stderr
    return ended.stderr


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (b"sk-first\nsecond", "holds a line break or another control character"),
        (b"sk-first\r\nx-a: second", "holds a line break or another control character"),
        (b"sk-first\x1bsecond", "holds a line break or another control character"),
        (b"sk-first\x7fsecond", "holds a line break or another control character"),
        (b"sk-first\xffsecond", "holds bytes that are no UTF-8"),
        (b"\n", "is not set"),
    ],
)
def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(
    tmp_path: Path, key: bytes, problem: str
) -> None:
    said = refused(tmp_path, "--dir", "calls", "--key-env", "KEY", key=key)

    assert f"variable KEY {problem}" in said
    assert "where: --key-env" in said
    assert "first" not in said
    assert "second" not in said
    assert not (tmp_path / "calls").exists()


def test_a_directory_that_cannot_be_made_is_blamed_on_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    said = refused(tmp_path, "--dir", "file/calls")

    assert "where: --dir" in said
    assert "model_call_capture_dir" not in said
