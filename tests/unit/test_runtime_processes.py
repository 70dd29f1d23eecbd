"""A child process that cannot be started says so; one that starts is not disturbed by questions."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from nemo_gym.config.resolved import RunConfig
from nemo_gym.errors import UserMistake
from nemo_gym.runtime.placement import ProcessPlan
from nemo_gym.runtime.processes import ChildProcess, ChildSettings, NotReady
from nemo_gym.runtime.watch import ASK_FIGURES


async def test_a_program_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    plan = ProcessPlan(
        "grader", (), is_cell=False, fixed_ports=True, python=str(tmp_path / "python")
    )
    settings = ChildSettings("run", RunConfig({}, (), {}), {}, tmp_path, 20)
    before = len(os.listdir("/proc/self/fd"))

    with pytest.raises(UserMistake) as refused:
        await ChildProcess(plan, {}, settings).launch()
    async with asyncio.timeout(5):
        while len(os.listdir("/proc/self/fd")) > before:  # noqa: ASYNC110 - closing sets no event
            await asyncio.sleep(0)

    assert "grader cannot be started: No such file or directory" in refused.value.what
    assert refused.value.where == str(tmp_path / "python")


async def test_questions_do_not_disturb_a_process_that_starts(tmp_path: Path) -> None:
    plan = ProcessPlan("cell-0", (), is_cell=True, fixed_ports=True)
    child = ChildProcess(plan, {}, ChildSettings("run", RunConfig({}, (), {}), {}, tmp_path, 20))
    steps = (child.launch, child.loaded, child.go, child.ready)

    for round_ in range(2):  # the second time as one that is started again
        for step in steps:
            if round_ == 0 or step != child.launch:
                with pytest.raises(NotReady):
                    await child.ask(ASK_FIGURES)
            await step()
        answers = [await child.ask(ASK_FIGURES) for _ in range(2)]
        await child.stop()

        assert [answer["process"] for answer in answers] == ["cell-0", "cell-0"]
        assert answers[0]["taken_at"] < answers[1]["taken_at"]


async def test_an_answer_that_nobody_waited_for_is_not_taken_for_a_later_one(
    tmp_path: Path,
) -> None:
    plan = ProcessPlan("cell-0", (), is_cell=True, fixed_ports=True)
    child = ChildProcess(plan, {}, ChildSettings("run", RunConfig({}, (), {}), {}, tmp_path, 20))
    for step in (child.launch, child.loaded, child.go, child.ready):
        await step()
    assert child.pid is not None
    os.kill(child.pid, signal.SIGSTOP)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(child.ask(ASK_FIGURES), 0.05)
    os.kill(child.pid, signal.SIGCONT)
    asked_at = time.time()

    answer = await child.ask(ASK_FIGURES)
    await child.stop()

    assert answer["taken_at"] >= asked_at
