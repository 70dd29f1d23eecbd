"""Commands where nothing around them can be relied on: streams, directories, terminals, locales."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.eval_command import environ_of, eval_arguments, task_file
from support.rollouts import lines_of

GYM = (sys.executable, "-m", "nemo_gym")


def _shell(
    folder: Path, line: str, *arguments: str, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell in which `"$@"` is gym with arguments."""
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}", "bash", *GYM, *arguments],  # noqa: S607
        cwd=folder,
        env={**environ_of(folder), **(environ or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "line",
    ['"$@" <&-', '"$@" >&-', '"$@" 2>&-', '"$@" <&- >&- 2>&-', '"$@" 2>/dev/full'],
    ids=["no-input", "no-output", "no-error", "nothing", "error-full"],
)
def test_streams_that_are_closed_cost_no_rollout(tmp_path: Path, line: str) -> None:
    task_file(tmp_path, [{}, {}])

    done = _shell(tmp_path, line, *eval_arguments(tmp_path))

    assert done.returncode == 0, done.stderr
    assert len(lines_of(tmp_path / "x.jsonl")) == 2


def test_a_report_that_cannot_be_written_is_one_message_and_the_rollouts_are_there(
    tmp_path: Path,
) -> None:
    task_file(tmp_path, [{}])

    done = _shell(tmp_path, '"$@" >/dev/full', *eval_arguments(tmp_path))

    assert done.returncode == 1
    assert done.stderr == ("error: standard output cannot be written: No space left on device\n")
    assert len(lines_of(tmp_path / "x.jsonl")) == 1


@pytest.mark.parametrize("arguments", [("list", "agents"), ("eval", "run", "--help")])
def test_a_reader_that_has_read_enough_is_no_failure(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = _shell(tmp_path, '"$@" | head -0', *arguments)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_run_keeps_its_exit_code_when_nobody_reads_its_report(tmp_path: Path) -> None:
    task_file(tmp_path, [{"status": 500}])

    done = _shell(tmp_path, '"$@" | head -0', *eval_arguments(tmp_path))

    assert done.returncode == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [("env", "validate"), ("list", "agents"), ("env", "init", "x")]
)
def test_a_working_directory_that_was_removed_is_one_message(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "gone").mkdir()

    done = _shell(tmp_path, 'cd gone && rmdir ../gone && "$@"', *arguments)

    assert done.returncode == 2
    assert "the working directory does not exist any more" in done.stderr
    assert "Traceback" not in done.stderr


UNUSABLE = {
    "a file": ({"XDG_STATE_HOME": "{folder}/rows.jsonl"}, "rows.jsonl"),
    "nowhere": ({"XDG_STATE_HOME": "/proc/nowhere"}, "/proc/nowhere"),
    "no home": ({"XDG_STATE_HOME": "", "HOME": "/proc/nobody"}, "/proc/nobody"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_state_directory_that_cannot_be_used_is_told_with_the_variable_to_set(
    tmp_path: Path, case: str
) -> None:
    variables, where = UNUSABLE[case]
    task_file(tmp_path, [{}])
    environ = {name: text.format(folder=tmp_path) for name, text in variables.items()}

    done = _shell(tmp_path, '"$@"', *eval_arguments(tmp_path), environ=environ)

    assert done.returncode == 2
    assert where in done.stderr
    assert "XDG_STATE_HOME" in done.stderr
    assert "Traceback" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"rows.jsonl"}


def test_names_that_are_no_text_are_refused_and_others_are_kept(tmp_path: Path) -> None:
    task_file(tmp_path, [{}])
    odd = os.fsdecode(b"r\xff.jsonl")

    refused = _shell(tmp_path, '"$@"', *eval_arguments(tmp_path, "--output", odd))
    taken = _shell(tmp_path, '"$@"', *eval_arguments(tmp_path, "--output", "é ü.jsonl"))

    assert (refused.returncode, r"r\xff.jsonl" in refused.stderr) == (2, True)
    assert taken.returncode == 0
    assert len(lines_of(tmp_path / "é ü.jsonl")) == 1


PLAIN = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    "environ",
    [PLAIN, {"PYTHONIOENCODING": "latin-1"}, {"PYTHONOPTIMIZE": "2"}, {"COLUMNS": "20"}],
    ids=["LANG=C", "latin-1", "python-OO", "twenty-columns"],
)
def test_locale_and_optimisation_change_nothing(tmp_path: Path, environ: dict[str, str]) -> None:
    task_file(tmp_path, [{"kept": "é→"}])

    done = _shell(tmp_path, '"$@"', *eval_arguments(tmp_path, "--json"), environ=environ)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["finished"] == 1
    assert [row["kept"] for row in lines_of(tmp_path / "x.jsonl")] == ["é→"]


def test_a_terminal_of_twenty_columns_gets_lines_and_no_column_of_letters(tmp_path: Path) -> None:
    task_file(tmp_path, [{}])
    line = " ".join([*GYM, *eval_arguments(tmp_path)])

    done = _shell(tmp_path, f'script -qec "{line}" /dev/null', environ={"COLUMNS": "20"})

    assert done.returncode == 0, done.stdout
    assert "scripted " in done.stdout
    assert "─" not in done.stdout
