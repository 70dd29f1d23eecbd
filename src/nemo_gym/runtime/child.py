"""A child process of a run: hosts what its parent hands it, until the parent lets go of its input.

Standard input carries one JSON line with the whole specification (secrets never touch the command
line or the environment), then `go`. Its end means stop: a parent that was killed takes its children
with it. Progress goes back as JSON lines on the status pipe.
"""

import asyncio
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from nemo_gym.config.resolved import RunConfig
from nemo_gym.config.secrets import Redactor
from nemo_gym.errors import UserMistake
from nemo_gym.runtime.cell import Cell
from nemo_gym.runtime.logs import install_logging
from nemo_gym.runtime.memory import settle_memory
from nemo_gym.runtime.told import told
from nemo_gym.runtime.watch import ProcessTelemetry

__all__ = ["main"]

_LAST_S = 3.0
"""How long the loop has to stop by itself once the parent is gone, in seconds."""


@dataclass(frozen=True, slots=True)
class _Spec:
    run_id: str
    process: str
    config: RunConfig
    servers: tuple[str, ...]
    sockets: dict[str, int]
    """Server name to inherited file descriptor."""
    addresses: dict[str, list[str]]
    """Servers that live elsewhere, by name."""
    log_dir: Path
    status_fd: int
    log_level: int

    @classmethod
    def parse(cls, line: str) -> "_Spec":
        data: dict[str, Any] = json.loads(line)
        return cls(
            run_id=data["run_id"],
            process=data["process"],
            config=RunConfig.from_json(data["config"]),
            servers=tuple(data["servers"]),
            sockets=data["sockets"],
            addresses=data["addresses"],
            log_dir=Path(data["log_dir"]),
            status_fd=data["status_fd"],
            log_level=data["log_level"],
        )


class _Status:
    """JSON lines to the parent; a parent that is gone is not an error."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._fd = fd

    def say(self, **facts: object) -> None:
        left = memoryview(json.dumps(facts).encode() + b"\n")
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except BrokenPipeError:
            return


async def _serve(spec: _Spec, status: _Status, control: asyncio.StreamReader) -> int:
    cell = Cell(spec.config, spec.addresses)
    try:
        telemetry = ProcessTelemetry.start(spec.config, spec.process, spec.run_id)
        cell.load(s for s in spec.config.servers if s.name in spec.servers)
    except UserMistake as mistake:
        status.say(mistake=str(mistake))
        return 2
    status.say(loaded=True)
    if await control.readline() != b"go\n":
        return 0
    sockets = {name: socket.socket(fileno=fd) for name, fd in spec.sockets.items()}
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with telemetry.observed_loop():
        try:
            await cell.start(sockets)
            settle_memory()
            status.say(ready=True, problems=[told(each) for each in await cell.provider_problems()])
            waits = [
                asyncio.ensure_future(stopping.wait()),
                asyncio.ensure_future(_answer_questions(telemetry, status, control)),
            ]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        except UserMistake as mistake:
            status.say(mistake=str(mistake))
            return 2
        finally:
            await cell.stop()
    await asyncio.to_thread(telemetry.shutdown)
    return 0


async def _answer_questions(
    telemetry: ProcessTelemetry, status: _Status, control: asyncio.StreamReader
) -> None:
    """Answer the parent until it lets go of the pipe."""
    while line := await control.readline():
        question = line.decode().strip()
        status.say(question=question, answer=telemetry.answer(question))


def _end_with_parent(fd: int) -> None:
    """End this process when its parent is gone and the loop does not see to it.

    Code of a component may hold the loop, or the import of it, for ever.
    """
    watched = select.poll()
    watched.register(fd, 0)  # hang-up is always told
    watched.poll()
    time.sleep(_LAST_S)
    os._exit(1)


async def _run() -> int:
    loop = asyncio.get_running_loop()
    control = asyncio.StreamReader(limit=2**26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(control), sys.stdin)
    spec = _Spec.parse((await control.readline()).decode())
    redact = Redactor(spec.config.secrets).redact
    install_logging(
        spec.log_dir,
        default=spec.process,
        redact=redact,
        console=sys.stderr,
        level=spec.log_level,
    )
    return await _serve(spec, _Status(spec.status_fd), control)


def main() -> int:
    """Run until told to stop; the exit code is 0, 2 for a user's mistake, 1 for a crash."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.dup(sys.stdin.fileno())
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run())


if __name__ == "__main__":
    sys.exit(main())
