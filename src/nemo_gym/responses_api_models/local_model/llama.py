"""A llama.cpp server in a process of its own: started, watched, started again, stopped.

Comes in: settings. Goes out: the origin at which it answers. Its log goes to this module's logger.
"""

import asyncio
import contextlib
import json
import logging
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from nemo_gym.errors import ConfigMistake, ConnectFailed, GymError, ServerDied
from nemo_gym.telemetry.live import live_counts

__all__ = ["Llama", "LlamaSettings"]

_LOG = logging.getLogger(__name__)
_COMMAND = (
    # -P: no module of the working directory takes the place of an installed one.
    *(sys.executable, "-P", "-m"),
    "nemo_gym.responses_api_models.local_model.llama_process",
)
_STOP_S = 1.0
_MOST_RESTARTS = 3
_TAIL_LINES = 20
_SEVERITY = re.compile(r"[\d.]+ (?P<letter>[DIWE]) ")
_LEVELS = {"E": logging.WARNING, "W": logging.INFO, "I": logging.INFO, "D": logging.DEBUG}


@dataclass(frozen=True, slots=True)
class LlamaSettings:
    """What the process is told."""

    path: str
    alias: str
    context_size: int
    """Tokens of prompt and answer in one slot; 0: what the model was trained with."""
    slots: int
    """Requests that are worked on at the same time."""
    threads: int
    http_threads: int
    gpu_layers: int = -1
    poll: int = 0
    """How eagerly threads wait for work, 0 to 100: higher is faster alone, slower in company."""
    verbosity: int = 1
    """1 errors, 2 warnings, 3 information, 4 and more for debugging."""


class Llama:
    """One llama.cpp server. `origin()` starts it where it is not running."""

    def __init__(
        self,
        settings: LlamaSettings,
        *,
        start_timeout_s: float,
        command: Sequence[str] = _COMMAND,
    ) -> None:
        self.settings = settings
        self.starts = 0
        """Processes started so far."""
        self._start_timeout_s = start_timeout_s
        self._command = command
        self._starting = asyncio.Lock()
        self._process: Process | None = None
        self._origin: str | None = None
        self._logging: asyncio.Task[None] | None = None
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._stopping = False

    async def origin(self) -> str:
        """Return `http://HOST:PORT`. A process that died is started again, three times at most.

        Raises `ConfigMistake` where llama.cpp refuses the model, `ServerDied` where it ends or
        takes too long, `ConnectFailed` where it has died too often or is being stopped.
        """
        if self._origin is not None and self.pid is not None:
            return self._origin
        async with self._starting:
            if self._origin is not None and self.pid is not None:
                return self._origin
            if self._stopping:
                raise ConnectFailed("the local model is stopping")
            if self.starts > _MOST_RESTARTS:
                raise ConnectFailed(f"the local model died {self.starts} times{self._last_words()}")
            try:
                self._origin = await self._start()
            except BaseException:
                await self._end()
                raise
            live_counts().local_slots[id(self)] = self.settings.slots
            return self._origin

    @property
    def pid(self) -> int | None:
        """Process id; None when it does not run."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def stop(self) -> None:
        """End the process within a second or two; no effect where there is none."""
        self._stopping = True
        async with self._starting:
            await self._end()

    async def _start(self) -> str:
        if self._process is not None and self._process.returncode is not None:
            await self._logged()  # how it died is told before another takes its place
        await self._end()
        self.starts += 1
        self._tail.clear()
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        self._logging = asyncio.create_task(self._log(process))
        try:
            async with asyncio.timeout(self._start_timeout_s):
                answer = await self._first_answer(process)
        except TimeoutError:
            after = f"did not load within {self._start_timeout_s:g} s"
            raise ServerDied(self.settings.alias, after, "\n".join(self._tail)) from None
        return answer

    async def _first_answer(self, process: Process) -> str:
        if process.stdin is None or process.stdout is None:  # pragma: no cover - asked for above
            raise ServerDied(self.settings.alias, "has no pipes")
        with contextlib.suppress(ConnectionError):  # what it died of is told below
            process.stdin.write(json.dumps(asdict(self.settings)).encode() + b"\n")
            await process.stdin.drain()
        line = await process.stdout.readline()
        if not line:
            code = await process.wait()
            await self._logged()
            raise ServerDied(self.settings.alias, _how_it_ended(code), "\n".join(self._tail))
        answer = json.loads(line)
        if "error" in answer:
            await process.wait()
            await self._logged()
            raise self._refused(answer["error"])
        return str(answer["address"])

    async def _logged(self) -> None:
        """Return when all that was said before the end has been read."""
        if self._logging is not None:
            await asyncio.wait([self._logging])

    def _refused(self, error: str) -> GymError:
        return ConfigMistake(
            f"llama.cpp cannot serve {self.settings.path}: {error}{self._last_words()}",
            mend="check the file; an architecture that is newer than llama.cpp needs:"
            " pip install -U xllamacpp",
        )

    async def _log(self, process: Process) -> None:
        """Pass the process's log on, and say so when it dies by itself."""
        if process.stderr is None:  # pragma: no cover - asked for
            return
        async for raw in process.stderr:
            line = raw.decode("utf-8", "replace").rstrip()
            if line:
                self._tail.append(line)
                found = _SEVERITY.match(line)
                _LOG.log(_LEVELS[found["letter"]] if found else logging.INFO, "%s", line)
        code = await process.wait()
        if not self._stopping and process is self._process and self._origin is not None:
            _LOG.error("the local model %s", _how_it_ended(code))

    async def _end(self) -> None:
        """End the process: ask, then kill."""
        process, self._process, self._origin = self._process, None, None
        live_counts().local_slots.pop(id(self), None)
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        await self._logged()

    def _last_words(self) -> str:
        said = [line for line in self._tail if (m := _SEVERITY.match(line)) and m["letter"] == "E"]
        return f"\n  {said[0]}" if said else ""


def _how_it_ended(code: int) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"was ended by {name}{hint}"
    return f"ended with exit code {code}"
