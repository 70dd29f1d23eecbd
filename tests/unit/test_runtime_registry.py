"""Files of live runs."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nemo_gym.runtime.registry import LiveRun, RunEntry, live_runs, new_run_id, process_start


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
