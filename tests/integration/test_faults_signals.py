"""Ctrl-C, SIGTERM, a closed terminal and `kill -9`: over within two seconds, no process left."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.eval_command import FIXTURES, environ_of, eval_run, start_eval, task_file
from support.processes import alive_after, children_of, family_of, wait_for_lines
from support.rollouts import files_of, lines_of, pairs_of

PLACEMENTS = {
    "in this process": (),
    "two cells": ("--workers", "2"),
    "one process a server": ("--one-process-each",),
}
SOON_S = 2.0
# A machine that runs other tests beside this one may take longer for the same.
PATIENCE_S = 4 * SOON_S


@contextmanager
def _under_way(folder: Path, rows: int, *options: str) -> Generator[subprocess.Popen[str]]:
    """Run an evaluation; inside, as many rollouts as may run are held up."""
    held, trace = folder / "released", folder / "trace"
    task_file(folder, ({"wait_for": str(held), "trace": str(trace)} for _ in range(rows)))
    process = start_eval(folder, "--concurrency", "3", *options)
    try:
        wait_for_lines(trace, 3)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.communicate()


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_ctrl_c_twice_stops_an_evaluation_and_leaves_a_run_to_resume(
    tmp_path: Path, placement: str
) -> None:
    with _under_way(tmp_path, 6, *PLACEMENTS[placement]) as process:
        family = family_of(process.pid)
        process.send_signal(signal.SIGINT)
        said = process.stderr.readline()  # type: ignore[union-attr] # it is a pipe
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)

        assert "finishing 3 rollouts" in said
        assert process.returncode == 130
        assert alive_after(family, SOON_S) == set()
    (tmp_path / "released").touch()
    assert eval_run(tmp_path, "--resume").code == 0
    assert sorted(pairs_of(tmp_path / "x.jsonl")) == [(task, 0) for task in range(6)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_and_a_closed_terminal_stop_an_evaluation_at_once(
    tmp_path: Path, number: signal.Signals
) -> None:
    with _under_way(tmp_path, 4) as process:
        process.send_signal(number)
        process.communicate(timeout=PATIENCE_S)

        assert process.returncode == 130
        failures = lines_of(files_of(tmp_path / "x.jsonl").failures)
        assert [row["_ng_failure_class"] for row in failures] == ["cancelled"] * 3


def test_ctrl_c_twice_ends_a_run_whose_component_never_gives_the_loop_back(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    task_file(tmp_path, [{"block": 600, "trace": str(trace)}])
    process = start_eval(tmp_path)
    wait_for_lines(trace, 1)

    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)  # two signals at the same moment are one
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 130
    assert time.monotonic() - began < PATIENCE_S


def _hanging_import(folder: Path) -> list[str]:
    """Make an agent whose import never ends; return the options that name it."""
    agent = folder / "responses_api_agents" / "hanging"
    (agent / "configs").mkdir(parents=True)
    (agent / "app.py").write_text(
        "import time\nopen('importing', 'w').write('yes\\n')\ntime.sleep(600)\n"
    )
    (agent / "configs" / "hanging.yaml").write_text(
        "hanging:\n  responses_api_agents:\n    hanging: {entrypoint: app.py}\n"
    )
    task_file(folder, [{}])
    return ["--agent-type", "hanging", "--agent", "hanging"]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_ctrl_c_ends_a_command_whose_component_hangs_while_it_is_imported(
    tmp_path: Path, placement: str
) -> None:
    options = _hanging_import(tmp_path)
    process = start_eval(tmp_path, *options, *PLACEMENTS[placement])
    wait_for_lines(tmp_path / "importing", 1)
    family = family_of(process.pid)

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 130
    assert alive_after(family, SOON_S) == set()


def test_a_child_that_hangs_goes_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    options = _hanging_import(tmp_path)
    process = start_eval(tmp_path, *options, "--one-process-each")
    wait_for_lines(tmp_path / "importing", 1)
    children = set(children_of(process.pid))

    process.kill()
    process.communicate()

    assert children
    assert alive_after(children, 10) == set()


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_once_or_twice_ends_env_start_and_leaves_no_process(
    tmp_path: Path, times: int
) -> None:
    agent = ("--agent-type", "scripted_agent", "--search-dir", str(FIXTURES))
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "nemo_gym", "env", "start", *agent),
            *("--workers", "2", "++head_server.port=0"),
        ],
        cwd=tmp_path,
        env=environ_of(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert any("healthy" in line for line in process.stdout)
    family = family_of(process.pid)

    for _ in range(times):
        process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)

    assert len(family) == 3
    assert alive_after(family, SOON_S) == set()
    assert "Traceback" not in said
