"""A child process of a run: hosts what its parent hands it, until the parent lets go of its input.

Standard input carries one JSON line with the whole specification (secrets never touch the command
line or the environment), then `go`, then questions. Its end means stop: a parent that was killed
takes its children with it. Progress and answers go back as JSON lines on the status pipe.

A thread listens and answers. What holds the event loop is what is asked about, so the loop cannot
be who answers; and an answer that the parent does not read in time must not hold the loop.
"""

import asyncio
import json
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
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

logger = logging.getLogger(__name__)

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
    """JSON lines to the parent, whole ones from any thread; a parent that is gone is no error."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._fd = fd
        self._saying = threading.Lock()

    def say(self, **facts: object) -> None:
        left = memoryview(json.dumps(facts).encode() + b"\n")
        try:
            with self._saying:
                while left:
                    left = left[os.write(self._fd, left) :]
        except BrokenPipeError:
            return


class _Parent:
    """What the parent says on standard input, line by line."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._heard = b""
        self.said_go = asyncio.Event()
        self.is_gone = asyncio.Event()

    def line(self) -> bytes:
        """Wait for a line; `b""` when the parent has let go."""
        # Not through `sys.stdin`: its lock, held by a waiting thread, breaks the process's end.
        pieces = [self._heard]
        while b"\n" not in pieces[-1]:
            piece = os.read(self._fd, 1 << 16)
            if not piece:
                return b""
            pieces.append(piece)
        line, _, self._heard = b"".join(pieces).partition(b"\n")
        return line + b"\n"

    def listen(self, answer: Callable[[str], Any], status: _Status) -> None:
        """Begin to hear `go` and to answer questions, on a thread of its own."""
        loop = asyncio.get_running_loop()
        thread = threading.Thread(
            target=self._listen, args=(answer, status, loop), name="nemo-gym-parent", daemon=True
        )
        thread.start()

    def _listen(
        self, answer: Callable[[str], Any], status: _Status, loop: asyncio.AbstractEventLoop
    ) -> None:
        while line := self.line():
            said = line.decode().strip()
            if said == "go":
                loop.call_soon_threadsafe(self.said_go.set)
                continue
            try:
                status.say(question=said, answer=answer(said))
            except Exception:  # the next question is to be answered all the same
                logger.exception("the question %r cannot be answered", said)
                status.say(question=said, answer=None)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(self.is_gone.set)


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _serve(spec: _Spec, status: _Status, parent: _Parent) -> int:
    cell = Cell(spec.config, spec.addresses)
    try:
        telemetry = ProcessTelemetry.start(spec.config, spec.process, spec.run_id)
        cell.load(s for s in spec.config.servers if s.name in spec.servers)
    except UserMistake as mistake:
        status.say(mistake=str(mistake))
        return 2
    parent.listen(telemetry.answer, status)
    status.say(loaded=True)
    await _first_of(parent.said_go, parent.is_gone)
    if not parent.said_go.is_set():
        return 0
    sockets = {name: socket.socket(fileno=fd) for name, fd in spec.sockets.items()}
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with telemetry.observed_loop():
        try:
            await cell.start(sockets)
            settle_memory()
            status.say(ready=True, problems=[told(each) for each in await cell.provider_problems()])
            await _first_of(stopping, parent.is_gone)
        except UserMistake as mistake:
            status.say(mistake=str(mistake))
            return 2
        finally:
            await cell.stop()
    await asyncio.to_thread(telemetry.shutdown)
    return 0


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
    parent = _Parent(sys.stdin.fileno())
    spec = _Spec.parse(parent.line().decode())  # there is nothing else to do yet
    redact = Redactor(spec.config.secrets).redact
    install_logging(
        spec.log_dir,
        default=spec.process,
        redact=redact,
        console=sys.stderr,
        level=spec.log_level,
    )
    return await _serve(spec, _Status(spec.status_fd), parent)


def main() -> int:
    """Run until told to stop; the exit code is 0, 2 for a user's mistake, 1 for a crash."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.dup(sys.stdin.fileno())
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run())


if __name__ == "__main__":
    sys.exit(main())
