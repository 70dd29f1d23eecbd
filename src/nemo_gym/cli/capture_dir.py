"""Which capture directory a command means: named, configured, or that of a live run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from nemo_gym.capture.store import CaptureStore
from nemo_gym.errors import UserMistake

__all__ = ["capture_dir_option", "open_store"]

_KEY = "model_call_capture_dir"

capture_dir_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"Capture directory; else {_KEY} of env.yaml, else that of the only live run.",
)


def open_store(directory: Path | None) -> CaptureStore:
    """Return the store of `directory`, or of the one found; raises `UserMistake` without any."""
    found = directory or _configured() or _live()
    if found is None:
        raise UserMistake("no capture directory is known", mend="name one by --dir DIR")
    if not found.is_dir():
        raise UserMistake(f"{found} is not a directory", mend="name a capture directory by --dir")
    return CaptureStore(found)


def _configured() -> Path | None:
    env_file = Path("env.yaml")
    if not env_file.is_file():
        return None
    import yaml  # only where there is a file to read

    try:
        settings = yaml.safe_load(env_file.read_text())
    except yaml.YAMLError:
        return None
    value = settings.get(_KEY) if isinstance(settings, dict) else None
    return Path(value) if isinstance(value, str) else None


def _live() -> Path | None:
    from nemo_gym.runtime.registry import live_runs  # the last place to look

    found = {run.extra.get(_KEY) for run in live_runs()} - {None}
    return Path(str(found.pop())) if len(found) == 1 else None
