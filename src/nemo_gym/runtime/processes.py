"""The child processes of a run, seen from their parent: started, watched, stopped.

Sockets are bound here and handed down, so an address is known before its server runs, stays the
same when a process is replaced, and a port in use is one clear error before anything starts.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_gym.config.resolved import RunConfig
from nemo_gym.errors import ServerDied, UserMistake
from nemo_gym.runtime.logs import tail
from nemo_gym.runtime.placement import ProcessPlan
from nemo_gym.runtime.registry import state_writable
from nemo_gym.runtime.told import mistake_of

__all__ = ["ChildProcess", "ChildSettings", "NotReady", "stop_all"]

_STOP_GRACE_S = 1.5
_LONGEST_ANSWER = 64 * 1024 * 1024
"""In bytes; the metrics of a process with many models and tools take some hundred KB."""


class NotReady(Exception):
    """A process that is still starting, or starts again, answers no questions."""


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """What all children of a run share."""

    run_id: str
    config: RunConfig
    addresses: Mapping[str, Sequence[str]]
    """Every server of the run and its origins; a child drops those it hosts itself."""
    log_dir: Path
    log_level: int


@dataclass(slots=True)
class ChildProcess:
    """One child: `launch`, `loaded`, `go`, `ready`, then `died` or `stop`."""

    plan: ProcessPlan
    sockets: Mapping[str, socket.socket]
    settings: ChildSettings
    _process: asyncio.subprocess.Process | None = None
    _status: asyncio.StreamReader = field(default_factory=asyncio.StreamReader)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _is_ready: bool = False
    _unanswered: int = 0
    """Questions whose answers have not come; whoever asked may have stopped waiting."""

    @property
    def pid(self) -> int | None:
        """Process id, None before `launch`."""
        return self._process.pid if self._process else None

    @property
    def console_path(self) -> Path:
        """Everything the process printed and logged, each line with its server in front."""
        return self.settings.log_dir / f"{self.plan.name}.console.log"

    async def launch(self) -> None:
        """Start the process in a session of its own and hand it its specification.

        Raises `UserMistake` where the system cannot start it.
        """
        read_fd, write_fd = os.pipe()
        fds = {name: sock.fileno() for name, sock in self.sockets.items()}
        self._status = asyncio.StreamReader(limit=_LONGEST_ANSWER)
        self._is_ready, self._unanswered = False, 0
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._status), os.fdopen(read_fd, "rb", 0)
        )
        with state_writable():
            console = self.console_path.open("ab")
        program = self.plan.python or sys.executable
        try:
            with console as out:
                self._process = await asyncio.create_subprocess_exec(
                    program,
                    "-m",
                    "nemo_gym.runtime.child",
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=out,
                    pass_fds=(*fds.values(), write_fd),
                    start_new_session=True,
                )
        except OSError as error:
            raise UserMistake(
                f"the process of {self.plan.name} cannot be started: {error.strerror or error}",
                where=program,
                mend="make room for another process; where the server has a `python` of its own, "
                "see that it is one",
            ) from error
        finally:
            os.close(write_fd)
        await self._say(self._specification(fds, write_fd))

    async def loaded(self) -> None:
        """Wait until every server is imported and validated; raises the child's `UserMistake`."""
        await self._expect("loaded")

    async def go(self) -> None:
        """Let the servers start."""
        await self._say("go")

    async def ready(self) -> list[UserMistake]:
        """Wait until every server accepts calls; returns what is wrong with providers."""
        problems = (await self._expect("ready"))["problems"]
        self._is_ready = True
        return [mistake_of(each) for each in problems]

    async def ask(self, question: str) -> Any:
        """Return the child's answer to one of the questions of `runtime.watch`.

        Raises `NotReady` before `ready`.
        """
        async with self._asking:
            if not self._is_ready:
                raise NotReady(self.plan.name)
            # One that is stopped, say, is asked again once it has answered what nobody waits for
            # any more: questions do not pile up, and no answer is older than its question.
            while self._unanswered:
                await self._answer()
            self._unanswered += 1
            await self._say(question)
            return await self._answer()

    async def _answer(self) -> Any:
        said = await self._expect("answer")
        self._unanswered -= 1
        return said["answer"]

    async def died(self) -> ServerDied:
        """Wait for the process to end by itself; returns how, with the end of its log."""
        if self._process is None:
            raise RuntimeError("a process that was not launched cannot die")
        code = await self._process.wait()
        return self._death(code)

    async def stop(self, grace_s: float = _STOP_GRACE_S) -> None:
        """Ask the process to stop, and kill its whole session when it does not within `grace_s`."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), grace_s)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def _say(self, line: str) -> None:
        if self._process is None or self._process.stdin is None:
            raise RuntimeError("the process was not launched")
        self._process.stdin.write(line.encode() + b"\n")
        # A child that died already is reported by `_expect`, with its log.
        with contextlib.suppress(ConnectionError):
            await self._process.stdin.drain()

    async def _expect(self, key: str) -> dict[str, Any]:
        line = await self._status.readline()
        if not line and self._process is not None:
            raise self._death(await self._process.wait())
        said: dict[str, Any] = json.loads(line)
        if "mistake" in said:
            raise UserMistake(said["mistake"])
        if key not in said:
            raise RuntimeError(f"{self.plan.name} said {said} where {key!r} was due")
        return said

    def _death(self, code: int) -> ServerDied:
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        names = ", ".join(s.name for s in self.plan.servers)
        text = tail(self.console_path, 15)
        where = f"{self.plan.name} ({names})" if self.plan.is_cell else self.plan.name
        return ServerDied(where, f"ended by itself, {how}; log: {self.console_path}", text)

    def _specification(self, fds: Mapping[str, int], status_fd: int) -> str:
        hosted = [s.name for s in self.plan.servers]
        elsewhere = {n: list(a) for n, a in self.settings.addresses.items() if n not in hosted}
        return json.dumps(
            {
                "run_id": self.settings.run_id,
                "process": self.plan.name,
                "config": self.settings.config.to_json(),
                "servers": hosted,
                "sockets": dict(fds),
                "addresses": elsewhere,
                "log_dir": str(self.settings.log_dir),
                "status_fd": status_fd,
                "log_level": self.settings.log_level,
            }
        )


async def stop_all(children: Sequence[ChildProcess], notify: Callable[[str], None]) -> None:
    """Stop every child side by side; what had to be killed is said."""
    stopping = [asyncio.ensure_future(child.stop()) for child in children]
    for child, result in zip(
        children, await asyncio.gather(*stopping, return_exceptions=True), strict=True
    ):
        if isinstance(result, BaseException):
            notify(f"{child.plan.name}: could not be stopped: {result}")
