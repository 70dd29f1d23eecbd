"""A pytest plugin (`-p support.uvloop_loops`): every async test of the run runs on uvloop."""

from collections.abc import Callable, Mapping

import pytest
import uvloop

__all__ = ["pytest_asyncio_loop_factories"]


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], uvloop.Loop]]:
    return {"uvloop": uvloop.new_event_loop}
