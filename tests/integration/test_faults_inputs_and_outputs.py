"""Rows and files that are unusual or wrong: taken whole, or refused by file and line."""

import ctypes
import json
import os
import stat
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from support.eval_command import ROW, eval_run, task_file
from support.rollouts import files_of, lines_of, pairs_of

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, PR_CAPBSET_DROP = 1, 2, 24


def _as_any_user() -> None:
    """Give up root's right to pass over permissions, where the test runs as root."""
    prctl = ctypes.CDLL(None).prctl
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A file system with room for one megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)  # noqa: S607 - wherever it is


def test_rows_are_taken_whatever_their_line_ends_and_characters(tmp_path: Path) -> None:
    odd = "a\u2028b\u2029c\u0085d\U0001f600"
    texts = [
        json.dumps({**ROW, "kept": odd}, ensure_ascii=False),
        '{"responses_create_params": {"input": "hi"}, "kept": 12345678901234567890}',
        json.dumps({**ROW, "kept": "z" * 10_000_000}),
        json.dumps({**ROW, "kept": "the last line has no end"}),
    ]
    (tmp_path / "rows.jsonl").write_bytes(b"\xef\xbb\xbf" + "\r\n\r\n".join(texts).encode())

    ended = eval_run(tmp_path)

    assert ended.code == 0, ended.err
    rows = {row["_ng_task_index"]: row["kept"] for row in lines_of(tmp_path / "x.jsonl")}
    assert [rows[0], rows[1], len(rows[2]), rows[3]] == [
        odd,
        12345678901234567890,
        10_000_000,
        "the last line has no end",
    ]


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (b'{"a": ', "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"responses_create_params": {"input": "\xff"}}', "not UTF-8"),
        (b'{"responses_create_params": {}, "a": ' + b"[" * 9000 + b"]" * 9000 + b"}", "too deeply"),
    ],
)
def test_a_row_that_is_no_json_is_told_by_file_and_line(
    tmp_path: Path, second: bytes, said: str
) -> None:
    (tmp_path / "rows.jsonl").write_bytes(json.dumps(ROW).encode() + b"\n" + second + b"\n")

    ended = eval_run(tmp_path)

    assert ended.code == 2, ended.err
    assert said in ended.err
    assert "rows.jsonl:2" in ended.err
    assert "Traceback" not in ended.err


def test_duplicate_rows_are_tasks_of_their_own(tmp_path: Path) -> None:
    task_file(tmp_path, [{}] * 3)

    ended = eval_run(tmp_path, "--num-repeats", "2")

    assert ended.code == 0, ended.err
    assert sorted(pairs_of(tmp_path / "x.jsonl")) == [(t, r) for t in range(3) for r in range(2)]


def test_a_run_of_nothing_is_no_failure_and_says_so(tmp_path: Path) -> None:
    task_file(tmp_path, [{}] * 2)

    ended = eval_run(tmp_path, "--limit", "0")

    assert ended.code == 0
    assert "nothing was run: --limit is 0" in ended.err
    assert "results that were there" not in ended.out
    assert lines_of(tmp_path / "x.jsonl") == []


@pytest.mark.parametrize("content", ["", "\n \n\n"], ids=["empty", "blank-lines"])
def test_an_input_without_a_row_is_a_mistake_and_leaves_nothing(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "rows.jsonl").write_text(content)

    ended = eval_run(tmp_path, "--output", "results/x.jsonl")

    assert ended.code == 2
    assert "the input has no rows" in ended.err
    assert f"where: {tmp_path}/rows.jsonl" in ended.err
    assert "mend:  give --input" in ended.err
    assert not (tmp_path / "results").exists()


def test_an_output_directory_that_is_missing_is_made(tmp_path: Path) -> None:
    task_file(tmp_path, [{}])

    ended = eval_run(tmp_path, "--output", "a/b/c/x.jsonl")

    assert ended.code == 0, ended.err
    assert len(lines_of(tmp_path / "a" / "b" / "c" / "x.jsonl")) == 1


def test_an_output_directory_that_is_not_writable_is_told_before_anything_runs(
    tmp_path: Path,
) -> None:
    task_file(tmp_path, [{}])
    folder = tmp_path / "results"
    folder.mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)

    ended = eval_run(tmp_path, "--output", "results/x.jsonl", preexec=_as_any_user)

    assert ended.code == 2, ended.err
    assert "the output cannot be written: Permission denied" in ended.err
    assert "results/x_run.lock" in ended.err
    assert list(folder.iterdir()) == []


def test_a_file_where_the_output_directory_should_be_is_told(tmp_path: Path) -> None:
    task_file(tmp_path, [{}])
    (tmp_path / "results").write_text("mine")

    ended = eval_run(tmp_path, "--output", "results/x.jsonl")

    assert ended.code == 2, ended.err
    assert "the output cannot be written" in ended.err
    assert (tmp_path / "results").read_text() == "mine"


def test_a_disk_that_fills_up_loses_nothing_and_the_run_goes_on_when_there_is_room(
    tmp_path: Path, small_disk: Path
) -> None:
    task_file(tmp_path, [{"answer_size": 20_000}] * 80)
    output = ("--output", "small/x.jsonl")

    full = eval_run(tmp_path, *output)
    kept = len(lines_of(small_disk / "x.jsonl"))
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)  # noqa: S607
    resumed = eval_run(tmp_path, *output, "--resume")

    assert full.code == 2, full.err
    assert "No space left on device" in full.err
    assert "--resume" in full.err
    assert "Traceback" not in full.err
    assert 0 < kept < 80
    assert resumed.code == 0, resumed.err
    assert sorted(pairs_of(small_disk / "x.jsonl")) == [(task, 0) for task in range(80)]


@pytest.mark.parametrize("damage", ["a torn line", "garbage", "rows twice", "a manifest"])
def test_files_that_were_damaged_are_mended_by_resume_or_refused(
    tmp_path: Path, damage: str
) -> None:
    task_file(tmp_path, ({"n": n} for n in range(4)))
    assert eval_run(tmp_path).code == 0
    files = files_of(tmp_path / "x.jsonl")
    data = files.output.read_bytes()
    lines = data.splitlines(keepends=True)
    damaged = {
        "a torn line": data[:-30],
        "garbage": b"".join([lines[0], b"\x00\xff{garbage\n", *lines[2:]]),
        "rows twice": data * 2,
        "a manifest": data,
    }
    files.output.write_bytes(damaged[damage])
    if damage == "a manifest":
        files.manifest.write_text("{")

    ended = eval_run(tmp_path, "--resume")

    assert "Traceback" not in ended.err
    if damage == "a manifest":
        assert ended.code == 2
        assert "x_run.json" in ended.err
    else:
        assert ended.code == 0, ended.err
        assert sorted(pairs_of(files.output)) == [(task, 0) for task in range(4)]
