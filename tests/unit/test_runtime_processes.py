"""A child process that cannot be started is a mistake that says so, and leaves nothing open."""

import asyncio
import os
from pathlib import Path

import pytest

from nemo_gym.config.resolved import RunConfig
from nemo_gym.errors import UserMistake
from nemo_gym.runtime.placement import ProcessPlan
from nemo_gym.runtime.processes import ChildProcess, ChildSettings


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
