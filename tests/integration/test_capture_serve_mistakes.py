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


@pytest.mark.parametrize("empty", ["", " "])
@pytest.mark.parametrize("option", ["--dir", "--rollout-id", "--host"])
def test_an_option_that_a_shell_left_empty_is_refused(
    tmp_path: Path, option: str, empty: str
) -> None:
    said = refused(tmp_path, "--dir", "calls", option, empty)

    assert f"{option} is empty" in said
    assert f"where: {option}" in said
    assert list(tmp_path.iterdir()) == []


def test_a_rollout_id_that_is_none_is_blamed_on_its_option(tmp_path: Path) -> None:
    assert "where: --rollout-id" in refused(tmp_path, "--dir", "calls", "--rollout-id", "../x")


@pytest.mark.parametrize("host", ["203.0.113.7", "no.such.host.invalid"])
def test_an_address_of_another_machine_is_blamed_on_the_options(tmp_path: Path, host: str) -> None:
    said = refused(tmp_path, "--dir", "calls", "--host", host)

    assert "cannot listen on" in said
    assert "where: --host, --port" in said
    assert "--host, and a --port" in said


def test_an_upstream_from_the_environment_is_not_in_the_process_list(tmp_path: Path) -> None:
    """As far as the command line goes: it is read, and refused like one that was given there."""
    ended = subprocess.run(
        [sys.executable, "-m", "nemo_gym", "capture", "serve", "--port", "0", "--dir", "calls"],
        cwd=tmp_path,
        env={**os.environ, "NEMO_GYM_CAPTURE_UPSTREAM": "ftp://user:password@h"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert ended.returncode == 2
    assert "where: --upstream" in ended.stderr
    assert "password" not in ended.stderr
