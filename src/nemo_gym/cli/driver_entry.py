"""A driver that uses servers of another process, made visible: in the live runs, with its figures.

`gym env status` lists it and `gym top` reads its counts beside those of the servers.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from nemo_gym.config.resolved import RunConfig
from nemo_gym.runtime.beside import SERVERS_OF
from nemo_gym.runtime.connect import connect_run
from nemo_gym.runtime.head import HeadApp
from nemo_gym.runtime.layout import DEFAULT_HOST, origin_of
from nemo_gym.runtime.registry import LiveRun, RunEntry, new_run_id, process_start
from nemo_gym.runtime.session import RunningServers
from nemo_gym.runtime.watch import ProcessTelemetry, figures_of, metrics_of
from nemo_gym.servers.serve import AppServer, bind_socket

__all__ = ["connected_driver"]


@asynccontextmanager
async def connected_driver(
    config: RunConfig, output: Path, notify: Callable[[str], None]
) -> AsyncGenerator[RunningServers]:
    """Give the servers that run already to a driver in this process, listed while it lives.

    `notify` gets one line for each thing a person should hear of. Raises `UserMistake` when none
    answer.
    """
    running = await connect_run(config)
    run_id = new_run_id(time.time())
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(running.client.aclose)
        telemetry = ProcessTelemetry.start(config, "driver", run_id, notify)
        stack.push_async_callback(asyncio.to_thread, telemetry.shutdown)
        await stack.enter_async_context(telemetry.observed_loop())
        sock = bind_socket(DEFAULT_HOST, 0)
        stack.callback(sock.close)
        figures, metrics = figures_of(telemetry, {}), metrics_of(telemetry, {})
        app = HeadApp(run_id, config.hidden(), (), figures=figures, metrics=metrics)
        server = AppServer(app, sock, "driver")
        await server.start()
        stack.push_async_callback(server.stop, 0.2)
        entry = _entry(run_id, running, output, origin_of(sock))
        stack.enter_context(RunEntry(entry))
        running.figures = figures
        yield running


def _entry(run_id: str, running: RunningServers, output: Path, figures_url: str) -> LiveRun:
    return LiveRun(
        run_id=run_id,
        kind="eval run",
        pid=os.getpid(),
        process_started=process_start(os.getpid()) or 0.0,
        started_at=time.time(),
        head_url=running.head_url,
        cwd=str(Path.cwd()),
        log_dir=str(running.log_dir or ""),
        servers=tuple(server.name for server in running.servers),
        output=str(output.absolute()),
        extra={"figures_url": figures_url, SERVERS_OF: running.run_id},
    )
