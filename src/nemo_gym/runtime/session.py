"""A run's servers, started here, as one value the driver can use.

`open_run` starts the servers of a configuration, a cell in this process or cells in child
processes, and stops them on leaving. `nemo_gym.runtime.connect` finds servers that run already.
"""

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nemo_gym.config.resolved import RunConfig
from nemo_gym.config.secrets import Redactor
from nemo_gym.errors import UserMistake
from nemo_gym.runtime.agreement import secret_marks
from nemo_gym.runtime.beside import expositions_beside
from nemo_gym.runtime.head import Answer, HeadApp, ServerEntry
from nemo_gym.runtime.layout import Layout, bind_head, bind_layout, origin_of
from nemo_gym.runtime.logs import install_logging
from nemo_gym.runtime.memory import settle_memory
from nemo_gym.runtime.placement import ProcessPlan, plan_processes
from nemo_gym.runtime.processes import ChildProcess, ChildSettings, stop_all
from nemo_gym.runtime.registry import (
    LiveRun,
    RunEntry,
    new_run_id,
    process_start,
    state_dir,
    state_writable,
)
from nemo_gym.runtime.told import placed
from nemo_gym.runtime.watch import ProcessTelemetry, figures_of, metrics_of
from nemo_gym.servers.serve import AppServer
from nemo_gym.transport.directory import Directory
from nemo_gym.transport.server_client import ServerClient

if TYPE_CHECKING:
    from nemo_gym.runtime.cell import Cell

__all__ = ["RunOptions", "RunningServers", "open_run"]

_SHOWN_KEYS = ("model_call_capture_dir",)
"""Settings that commands look up in the files of live runs."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How the servers of a run are placed and named."""

    kind: str = "eval run"
    """`eval run` or `env start`, as `gym env status` shows it."""
    workers: int = 1
    one_process_each: bool = False
    in_process: bool = True
    """Whether a single cell lives in this process; more than one cell never does."""
    free_head_port: bool = True
    """False takes the documented or configured port of the head server."""
    output: str | None = None
    log_level: int = logging.INFO


@dataclass(slots=True)
class RunningServers:
    """A run that accepts calls."""

    run_id: str
    client: ServerClient
    tree: Mapping[str, object]
    """Resolved configuration, secrets hidden."""
    servers: tuple[ServerEntry, ...]
    head_url: str
    log_dir: Path | None
    """Logs of the servers; None when they belong to a run on another machine."""
    problems: list[UserMistake] = field(default_factory=list)
    """What is wrong already: providers that cannot be used as things are."""
    misfits: Mapping[str, UserMistake] = field(default_factory=dict)
    """Servers whose calls cannot be answered as things are configured, by name."""
    children: list[ChildProcess] = field(default_factory=list)
    figures: Answer | None = None
    """Figures of every process of the run, as JSON."""

    @property
    def agents(self) -> list[str]:
        """Names of the agent instances."""
        return [s.name for s in self.servers if s.kind == "responses_api_agents"]


@asynccontextmanager
async def open_run(
    config: RunConfig, options: RunOptions, notify: Callable[[str], None]
) -> AsyncGenerator[RunningServers]:
    """Start every server of `config`; yields once all are healthy, stops them on leaving.

    Raises `UserMistake` (before anything starts) for what the user can mend and `ServerDied` for a
    server that does not come up. `notify` gets one line for each thing a person should hear of.
    """
    now = time.time()
    run_id = new_run_id(now)
    log_dir = state_dir() / "logs" / run_id
    redact = Redactor(config.secrets).redact
    async with contextlib.AsyncExitStack() as stack:
        with state_writable():
            handler = install_logging(
                log_dir, default="driver", redact=redact, level=options.log_level
            )
        stack.callback(handler.close)
        stack.callback(logging.getLogger().removeHandler, handler)
        layout = bind_layout(
            plan_processes(
                config.servers, options.workers, one_process_each=options.one_process_each
            )
        )
        stack.callback(layout.close)
        running = await _Start(config, options, layout, run_id, log_dir, stack).running(notify)
        stack.enter_context(RunEntry(_live_run(running, options, now)))
        yield running


@dataclass(frozen=True, slots=True)
class _Start:
    """A run on its way up; what was started is on `stack`, so a failure takes it down again."""

    config: RunConfig
    options: RunOptions
    layout: Layout
    run_id: str
    log_dir: Path
    stack: contextlib.AsyncExitStack

    async def running(self, notify: Callable[[str], None]) -> RunningServers:
        """Start every process, then the head server."""
        head_socket = bind_head(self.config, free_port=self.options.free_head_port)
        self.stack.callback(head_socket.close)
        here = _hosted_here(self.layout.plans, self.options)
        drives = self.options.kind == "eval run"
        process = "driver" if here or drives else "parent"
        telemetry = ProcessTelemetry.start(self.config, process, self.run_id, notify)
        children = self._children(here)
        ending = _Ending(children, telemetry, notify)
        self.stack.push_async_callback(ending.finish)
        await self.stack.enter_async_context(telemetry.observed_loop())
        self.stack.push_async_callback(ending.begin)
        client, cell = _client(self.config, self.layout.addresses(), here)
        self.stack.push_async_callback(cell.stop if cell else client.aclose)
        problems = await _start_processes(cell, here, children, self.layout)
        asks = {child.plan.name: child.ask for child in children}
        running = RunningServers(
            run_id=self.run_id,
            client=client,
            tree=self.config.hidden(),
            servers=self.layout.entries(self.config.servers),
            head_url=origin_of(head_socket),
            log_dir=self.log_dir,
            problems=[placed(problem, self.config) for problem in problems],
            misfits=self.config.misfits,
            children=children,
            figures=figures_of(telemetry, asks),
        )
        await self._serve_head(
            running,
            head_socket,
            metrics_of(telemetry, asks, partial(expositions_beside, self.run_id)),
        )
        settle_memory()
        return running

    def _children(self, here: ProcessPlan | None) -> list[ChildProcess]:
        settings = ChildSettings(
            self.run_id,
            self.config,
            self.layout.addresses(),
            self.log_dir,
            self.options.log_level,
        )
        return [
            ChildProcess(plan, self.layout.sockets[plan.name], settings)
            for plan in self.layout.plans
            if plan is not here
        ]

    async def _serve_head(
        self, running: RunningServers, sock: socket.socket, metrics: Answer | None
    ) -> None:
        app = HeadApp(
            self.run_id,
            running.tree,
            running.servers,
            misfits=running.misfits,
            secret_marks=secret_marks(self.config.tree, running.tree),
            figures=running.figures,
            metrics=metrics,
        )
        head = AppServer(app, sock, "head_server")
        await head.start()
        self.stack.push_async_callback(head.stop, 0.2)


class _Ending:
    """Stops the children and what this process exports, side by side.

    Each of them may have to wait for a collector that does not answer, and so may the end of the
    observed loop, which comes after `begin` and before `finish`.
    """

    def __init__(
        self,
        children: Sequence[ChildProcess],
        telemetry: ProcessTelemetry,
        notify: Callable[[str], None],
    ) -> None:
        self._children = children
        self._telemetry = telemetry
        self._notify = notify
        self._stopping: asyncio.Task[None] | None = None

    async def begin(self) -> "asyncio.Task[None]":
        """Tell the children to stop."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(stop_all(self._children, self._notify))
            # So that they are told before anything here takes its time.
            await asyncio.sleep(0)
        return self._stopping

    async def finish(self) -> None:
        """Return once the children have ended and all is sent, or will not be."""
        await asyncio.gather(await self.begin(), asyncio.to_thread(self._telemetry.shutdown))


def _client(
    config: RunConfig, addresses: Mapping[str, Sequence[str]], here: ProcessPlan | None
) -> "tuple[ServerClient, Cell | None]":
    """Return the driver's client, and the cell of this process where there is one."""
    if here is not None:
        # The web framework is imported only by a process that hosts servers.
        from nemo_gym.runtime.cell import Cell  # noqa: PLC0415 - costs 0.3 s of CPU

        hosted = {s.name for s in here.servers}
        cell = Cell(config, {n: a for n, a in addresses.items() if n not in hosted})
        return cell.client, cell
    directory = Directory()
    for name, origins in addresses.items():
        directory.set_addresses(name, list(origins))
    return ServerClient(directory, config.tree), None


async def _start_processes(
    cell: "Cell | None",
    here: ProcessPlan | None,
    children: Sequence[ChildProcess],
    layout: Layout,
) -> list[UserMistake]:
    """Load everything everywhere, then start it: a mistake is told before anything runs."""
    await asyncio.gather(*(child.launch() for child in children))
    if cell is not None and here is not None:
        cell.load(here.servers)
    await asyncio.gather(*(child.loaded() for child in children))
    for child in children:
        await child.go()
    problems: list[UserMistake] = []
    if cell is not None and here is not None:
        await cell.start(layout.sockets[here.name])
        problems += await cell.provider_problems()
    for found in await asyncio.gather(*(child.ready() for child in children)):
        problems += found
    # Every cell hosts every model server, and asks its provider.
    return [each for _, each in sorted({each.what: each for each in problems}.items())]


def _hosted_here(plans: Sequence[ProcessPlan], options: RunOptions) -> ProcessPlan | None:
    cells = [plan for plan in plans if plan.is_cell]
    return cells[0] if options.in_process and len(cells) == 1 else None


def _live_run(running: RunningServers, options: RunOptions, now: float) -> LiveRun:
    return LiveRun(
        run_id=running.run_id,
        kind=options.kind,
        pid=os.getpid(),
        process_started=process_start(os.getpid()) or 0.0,
        started_at=now,
        head_url=running.head_url,
        cwd=str(Path.cwd()),
        log_dir=str(running.log_dir),
        servers=tuple(s.name for s in running.servers),
        output=options.output,
        extra={key: running.tree[key] for key in _SHOWN_KEYS if running.tree.get(key)},
    )
