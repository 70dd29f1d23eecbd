"""`gym capture` on rows that failed, or that others wrote: all is told, nothing is obeyed."""

import json
import os
import pty
import re
import subprocess
import sys
import unicodedata
from contextlib import suppress
from pathlib import Path

import pytest

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


EVIL = "a\x1b[31m\x1b]52;c;eA==\x07\x00\x9b2J\x7f"


def _said(text: str, **more: object) -> dict[str, object]:
    message = {"role": "assistant", "content": text}
    response = {
        "model": text,
        "choices": [{"message": message}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    whole = dict.fromkeys(("model_call_id", "status_code"), None)
    return {**whole, "dialect": "chat", "completed_at": 1e9, "response": response, **more}


def _on_terminal(*arguments: str, folder: Path) -> bytes:
    """Return what a terminal gets of both standard streams."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [GYM, "capture", *arguments, "--dir", str(folder)], stdout=theirs, stderr=theirs, cwd=folder
    ):
        os.close(theirs)
        printed = b""
        with suppress(OSError):  # so ends a terminal that nobody holds any more
            while data := os.read(ours, 65536):
                printed += data
    os.close(ours)
    return printed


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "0-0"),
        ("show", "0-0", "--json"),
        ("show", "0-0", "--raw"),
        ("show", "no-such-rollout"),
        ("tail",),
        ("tail", "--raw"),
        ("ls",),
        ("ls", "--json"),
        ("verify",),
        ("repair",),
    ],
)
def test_nothing_that_a_model_or_a_path_says_steers_the_terminal(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    folder = tmp_path / "calls\x1b[31m\x9b2J"
    folder.mkdir()
    notes = {"note": EVIL}
    _keep(folder, _said(EVIL, error_category=EVIL, notes=notes, request_raw=EVIL), f"no row {EVIL}")
    printed = _on_terminal(*arguments, folder=folder).decode()
    ours = re.sub("\x1b\\[[0-9;]*m", "", printed)  # the styles of `show`

    assert printed
    assert "\x1b[31m\x1b]" not in printed
    assert not {c for c in ours if unicodedata.category(c) == "Cc"} - {"\r", "\n", "\t"}


def test_a_pipe_gets_what_was_said_with_its_controls_visible(tmp_path: Path) -> None:
    _keep(tmp_path, _said("red \x1b[31m\x9b"))
    shown = _gym("show", "0-0", folder=tmp_path).stdout
    record = json.loads(_gym("show", "0-0", "--json", folder=tmp_path).stdout)[0]

    assert r"assistant: red \x1b[31m\x9b" in shown
    assert record["response"]["choices"][0]["message"]["content"] == "red \x1b[31m\x9b"


@pytest.mark.parametrize("arguments", [("show", "0-0"), ("tail",)])
def test_raw_lines_reach_a_pipe_as_they_are(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    stored = b'{"said": "\xc2\x9b \xff"}\n'
    (tmp_path / "0-0.capture.jsonl").write_bytes(stored)
    command = [GYM, "capture", *arguments, "--raw", "--dir", str(tmp_path)]

    assert subprocess.run(command, capture_output=True, check=True).stdout == stored


def test_a_row_nested_deeply_is_shown_with_all_others(tmp_path: Path) -> None:
    deep = json.dumps(_said("second"))[:-1] + ', "request": {"x": ' + "[" * 900 + "]" * 900 + "}}"
    _keep(tmp_path, _said("first"), deep, _said("third"))
    shown = _gym("show", "0-0", "--json", folder=tmp_path)

    assert shown.returncode == 0, shown.stderr
    assert [call["response"]["model"] for call in json.loads(shown.stdout)] == [
        "first",
        "second",
        "third",
    ]
    assert json.loads(shown.stdout)[1]["request"] == json.loads(deep)["request"]


def test_a_row_with_half_a_pair_is_read_by_every_command(tmp_path: Path) -> None:
    _keep(tmp_path, json.dumps(_said("half \ud800")))
    shown = _gym("show", "0-0", folder=tmp_path)
    records = _gym("show", "0-0", "--json", folder=tmp_path)
    last = _gym("tail", folder=tmp_path)
    (listed,) = map(json.loads, _gym("ls", "--json", folder=tmp_path).stdout.splitlines())

    assert [ran.stderr for ran in (shown, records, last)] == ["", "", ""]
    assert r"assistant: half \ud800" in shown.stdout
    assert json.loads(records.stdout)[0]["response"]["model"] == "half \ud800"
    assert r"half \ud800" in last.stdout
    assert (listed["calls"], listed["damaged"], listed["completed_at"]) == (1, 0, 1e9)
    assert (listed["tokens_in"], listed["tokens_out"]) == (3, 2)


def test_tail_and_verify_agree_on_what_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "0-0.capture.jsonl").write_bytes(b'{"dialect": "\xff"}\n')

    assert _gym("tail", folder=tmp_path).stdout == "0-0  damaged line\n"
    assert "damaged: " in _gym("verify", folder=tmp_path).stdout
