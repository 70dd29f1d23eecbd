"""Log records to a file a server and to the console with the server's name in front.

Which server a record belongs to is carried by a context variable, set where a request enters the
server's app, since the servers of a cell share one process and one root logger.
"""

import logging
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TextIO

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["ServerLogHandler", "install_logging", "name_requests", "server_named", "tail"]

_SERVER: ContextVar[str | None] = ContextVar("nemo_gym_server", default=None)
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class ServerLogHandler(logging.Handler):
    """Write each record to `<server>.log` in `log_dir` and, prefixed, to `console`."""

    def __init__(
        self, log_dir: Path, console: TextIO | None, redact: Callable[[str], str], default: str
    ) -> None:
        super().__init__()
        self._log_dir = log_dir
        self._console = console
        self._redact = redact
        self._default = default
        self._files: dict[str, TextIO] = {}
        self._told_lost = False
        self.setFormatter(logging.Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; one that cannot be written or formatted raises nothing."""
        server = _SERVER.get() or self._default
        try:
            text = self._redact(self.format(record))
        except Exception as error:  # noqa: BLE001 - a wrong log call must not fail its caller
            where = f"{record.pathname}:{record.lineno}"
            text = self._redact(f"{where}: a log record that cannot be formatted: {error}")
        try:
            out = self._files.get(server) or self._open(server)
            out.write(text + "\n")
            if self._console is not None:
                body = "".join(f"[{server}] {line}\n" for line in text.splitlines())
                self._console.write(body)
                self._console.flush()
        except (OSError, ValueError) as error:
            self._lost(error)

    def close(self) -> None:
        """Close every file."""
        for out in self._files.values():
            with suppress(OSError):  # what was buffered for a full disk
                out.close()
        self._files.clear()
        super().close()

    def _lost(self, error: OSError | ValueError) -> None:
        """Say once that records are lost: a full disk would say so at every one."""
        if self._told_lost:
            return
        self._told_lost = True
        with suppress(OSError, ValueError):
            sys.stderr.write(f"warning: logs in {self._log_dir} cannot be written: {error}\n")

    def _open(self, server: str) -> TextIO:
        path = self._log_dir / f"{server}.log"
        # Line buffered: what a killed process logged is in its file.
        out = self._files[server] = path.open("a", buffering=1, encoding="utf-8")
        return out


def install_logging(
    log_dir: Path,
    *,
    default: str,
    redact: Callable[[str], str],
    level: int = logging.INFO,
    console: TextIO | None = None,
) -> ServerLogHandler:
    """Send every record of this process to `log_dir`; `console=None` keeps them off the console."""
    log_dir.mkdir(parents=True, exist_ok=True)
    handler = ServerLogHandler(log_dir, console, redact, default)
    root = logging.getLogger()
    for old in list(root.handlers):
        if isinstance(old, ServerLogHandler):
            root.removeHandler(old)
            old.close()
    root.addHandler(handler)
    root.setLevel(level)
    # Connection-level chatter of the HTTP server says nothing that a run's reader needs.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    return handler


@contextmanager
def server_named(name: str) -> Generator[None]:
    """Give every record inside to server `name`."""
    token = _SERVER.set(name)
    try:
        yield
    finally:
        _SERVER.reset(token)


def name_requests(app: ASGIApp, name: str) -> ASGIApp:
    """Return `app` with each of its requests logged under `name`."""

    async def named(scope: Scope, receive: Receive, send: Send) -> None:
        _SERVER.set(name)
        await app(scope, receive, send)

    return named


def tail(path: Path, lines: int = 20) -> str:
    """Return the last lines of a log, empty when there is none."""
    try:
        with path.open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - 64_000))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def stderr_console() -> TextIO:
    """Return where a child's console lines go: its standard error, read by the parent."""
    return sys.stderr
