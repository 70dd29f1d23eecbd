"""Files of live runs."""

import os
import pwd
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nemo_gym.errors import UserMistake
from nemo_gym.runtime.registry import (
    LiveRun,
    RunEntry,
    live_runs,
    new_run_id,
    process_start,
    state_dir,
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveRun:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return LiveRun(
        run_id=new_run_id(1000.0),
        kind="env start",
        pid=os.getpid(),
        process_started=process_start(os.getpid()) or 0.0,
        started_at=1000.0,
        head_url="http://127.0.0.1:11000",
        cwd="/",
        log_dir=str(tmp_path / "nemo_gym" / "logs" / "x"),
        servers=("a", "b"),
    )


def test_a_run_is_listed_while_it_lives(run: LiveRun) -> None:
    with RunEntry(run):
        inside = live_runs()

    assert inside == [run]
    assert live_runs() == []


def test_a_run_whose_process_is_gone_is_not_listed_and_its_file_goes(
    run: LiveRun, tmp_path: Path
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        check=True,
        capture_output=True,
        text=True,
    )
    entry = RunEntry(replace(run, pid=int(ended.stdout)))
    entry.__enter__()

    assert live_runs() == []
    assert list((tmp_path / "nemo_gym" / "runs").iterdir()) == []


def test_a_reused_pid_is_not_taken_for_the_run(run: LiveRun) -> None:
    with RunEntry(replace(run, process_started=run.process_started - 1)):
        assert live_runs() == []


def test_a_torn_file_is_passed_over(run: LiveRun, tmp_path: Path) -> None:
    with RunEntry(run):
        (tmp_path / "nemo_gym" / "runs" / "0-torn.json").write_text('{"run_id": "0-t')

        assert live_runs() == [run]


def test_a_state_directory_that_cannot_be_written_is_one_mistake_with_a_remedy(
    run: LiveRun, tmp_path: Path
) -> None:
    (tmp_path / "nemo_gym").write_text("a file where the directory should be")

    with pytest.raises(UserMistake) as raised:
        RunEntry(run).__enter__()

    assert "cannot be written" in raised.value.what
    assert str(tmp_path / "nemo_gym") in (raised.value.where or "")
    assert "XDG_STATE_HOME" in (raised.value.mend or "")
    assert live_runs() == []


def test_a_relative_state_directory_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))

    assert state_dir() == tmp_path / ".local" / "state" / "nemo_gym"


@pytest.mark.parametrize("home", ["", "relative"])
def test_without_a_home_of_its_own_the_environment_leaves_it_to_the_system(
    monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", home)

    assert str(state_dir()).startswith(pwd.getpwuid(os.getuid()).pw_dir)


def test_a_user_without_a_home_directory_is_told_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nobody(_uid: int) -> None:
        raise KeyError(_uid)

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)

    with pytest.raises(UserMistake, match="no home directory") as raised:
        state_dir()

    assert "XDG_STATE_HOME" in (raised.value.mend or "")
