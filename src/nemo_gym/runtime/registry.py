"""Live runs of this user, one JSON file each: how `status`, `stop` and `top` find them.

A file is written when a run starts and removed when it ends. A run that was killed leaves its
file behind; whoever reads the folder next sees that the process is gone and removes it.
"""

import json
import os
import pwd
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from nemo_gym.errors import UserMistake

__all__ = [
    "LiveRun",
    "RunEntry",
    "live_runs",
    "new_run_id",
    "process_start",
    "state_dir",
    "state_writable",
]

_KEPT_LOG_FOLDERS = 20


@dataclass(frozen=True, slots=True)
class LiveRun:
    """What another process needs to know of a run."""

    run_id: str
    kind: str
    """`env start` or `eval run`."""
    pid: int
    """The process that owns the run; its end is the end of the run."""
    process_started: float
    """The kernel's start tick of `pid`, so that a reused pid is not taken for the run."""
    started_at: float
    """UTC Unix seconds."""
    head_url: str
    cwd: str
    log_dir: str
    servers: tuple[str, ...] = ()
    output: str | None = None
    """Output file of an evaluation; None for `env start`."""
    extra: dict[str, object] = field(default_factory=dict)


def state_dir() -> Path:
    """Return `$XDG_STATE_HOME/nemo_gym`, by default `~/.local/state/nemo_gym`.

    A path that is not absolute is passed over, as the XDG standard asks.
    """
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else _home() / ".local" / "state") / "nemo_gym"


def _home() -> Path:
    named = Path(os.environ.get("HOME", ""))
    try:
        return named if named.is_absolute() else Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise UserMistake(
            "this user has no home directory, so there is no place for logs and live runs",
            where="HOME, XDG_STATE_HOME",
            mend="set XDG_STATE_HOME to a directory that can be written",
        ) from None


@contextmanager
def state_writable() -> Generator[None]:
    """Write to the state directory inside; raises `UserMistake` where it cannot be written."""
    try:
        yield
    except OSError as error:
        raise UserMistake(
            f"the state directory, for logs and the list of live runs, cannot be written: "
            f"{error.strerror or error}",
            where=str(error.filename or state_dir()),
            mend="set XDG_STATE_HOME to a directory that can be written, or make room there",
        ) from error


def new_run_id(now: float) -> str:
    """Return an id for a run started at `now` (UTC Unix seconds): sortable, unique per user."""
    return f"{int(now)}-{secrets.token_hex(3)}"


def process_start(pid: int) -> float | None:
    """Return the start tick of `pid`, None when there is no such process.

    Linux only (`proc(5)`, field 22 of `stat`); elsewhere 0.0 for every process that is alive.
    """
    stat = Path(f"/proc/{pid}/stat")
    try:
        text = stat.read_bytes().decode("latin-1")  # a name may hold any bytes
    except FileNotFoundError:
        return None if Path("/proc").is_dir() and Path("/proc/self").exists() else _alive(pid)
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    # A zombie has ended: only its parent has not asked yet.
    return None if fields[0] in {"Z", "X"} else float(fields[19])


def _alive(pid: int) -> float | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return 0.0
    return 0.0


class RunEntry:
    """The file of one run of this process: written on entering, removed on leaving."""

    def __init__(self, run: LiveRun) -> None:
        self.run = run
        self._path = _runs_dir() / f"{run.run_id}.json"

    def __enter__(self) -> "RunEntry":
        partial = self._path.with_suffix(".partial")
        with state_writable():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _forget_old_logs()
            try:
                partial.write_text(json.dumps(asdict(self.run), indent=1))
                partial.replace(self._path)
            except OSError:
                partial.unlink(missing_ok=True)
                raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        # Where it cannot be removed it is seen to be of a process that has ended.
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def live_runs() -> list[LiveRun]:
    """Return the runs whose process is alive, oldest first; files of dead ones are removed."""
    found: list[LiveRun] = []
    for path in _entries(_runs_dir()):
        try:
            data = json.loads(path.read_text())
            run = LiveRun(**{**data, "servers": tuple(data["servers"])})
        except (OSError, ValueError, TypeError, KeyError):
            continue
        started = process_start(run.pid)
        if started is None or started != run.process_started:
            with suppress(OSError):
                path.unlink()
            continue
        found.append(run)
    return found


def _entries(folder: Path) -> list[Path]:
    try:
        names = [name for name in os.listdir(folder) if name.endswith(".json")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserMistake(
            f"the list of live runs cannot be read: {error.strerror or error}",
            where=str(folder),
            mend="set XDG_STATE_HOME to a directory of this user",
        ) from error
    return [folder / name for name in sorted(names)]


def _runs_dir() -> Path:
    return state_dir() / "runs"


def _forget_old_logs() -> None:
    logs = state_dir() / "logs"
    if not logs.is_dir():
        return
    live = {run.log_dir for run in live_runs()}
    folders = sorted(p for p in logs.iterdir() if p.is_dir() and str(p) not in live)
    for folder in folders[:-_KEPT_LOG_FOLDERS]:
        shutil.rmtree(folder, ignore_errors=True)
