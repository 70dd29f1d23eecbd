"""`x_run.json`: what a run was asked to do, with what, and how far it came.

Written before the first rollout is dispatched and again when the run ends, each time whole.
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from nemo_gym import __version__
from nemo_gym.errors import ResumeRefused
from nemo_gym.files.replace import replace_file
from nemo_gym.wire.json import dumps, loads_strictly

__all__ = ["Inputs", "Manifest", "Selection", "read_manifest", "utc_text", "write_manifest"]

_SCHEMA_VERSION = "1.0"


@dataclass(frozen=True, slots=True)
class Selection:
    """What was taken from the inputs."""

    agent: str | None
    limit: int | None
    num_repeats: int


@dataclass(frozen=True, slots=True)
class Inputs:
    """Which rows a run is made of."""

    paths: tuple[str, ...]
    tasks: int
    """Rows taken."""
    rollouts: int
    """Rows times repeats."""
    sha256: str
    """Of the rows taken, as they stand in the files."""


@dataclass(slots=True)
class Manifest:
    """The record of one run; `sessions` has one entry each time it was started or resumed."""

    run_id: str
    inputs: Inputs
    selection: Selection
    config: Mapping[str, object]
    """The resolved configuration, secrets hidden."""
    row_keys: tuple[str, ...] = ()
    """Top-level keys that rows carried: they are not metrics of the environment."""
    capture_dir: str | None = None
    """Where the servers keep model calls; None when capture is off."""
    status: str = "running"
    """`running`, `completed`, `interrupted` or `failed`."""
    counts: dict[str, object] = field(default_factory=dict)
    sessions: list[dict[str, object]] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)

    def begin_session(self, now: float, moves: Sequence[str] = ()) -> None:
        """Note that the run was started, or resumed, at `now` (UTC Unix seconds).

        `moves` says how models are reached otherwise than in the session before.
        """
        self.status = "running"
        self.sessions.append(
            {
                "started_at": utc_text(now),
                "ended_at": None,
                "status": "running",
                "nemo_gym": __version__,
                "python": platform.python_version(),
                "host": platform.node(),
                **({"moved": [*moves]} if moves else {}),
            }
        )

    def end_session(self, status: str, now: float) -> None:
        """Note how the run, and its last session, ended."""
        self.status = status
        self.sessions[-1] |= {"ended_at": utc_text(now), "status": status}


def utc_text(seconds: float) -> str:
    """Return UTC Unix seconds as text, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Put the manifest in place, whole and durable; raises `OSError`."""
    document = {"schema_version": _SCHEMA_VERSION, **asdict(manifest)}
    replace_file(path, dumps(document, dict, option=orjson.OPT_INDENT_2) + b"\n")


def read_manifest(path: Path) -> Manifest | None:
    """Return the manifest; None when there is none. Raises `ResumeRefused` when it is damaged."""
    try:
        document: Any = loads_strictly(path.read_bytes())
        document.pop("schema_version", None)
        return Manifest(
            **{
                **document,
                "inputs": Inputs(
                    **{**document["inputs"], "paths": tuple(document["inputs"]["paths"])}
                ),
                "selection": Selection(**document["selection"]),
                "row_keys": tuple(document["row_keys"]),
            }
        )
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ResumeRefused(
            f"the run's manifest cannot be read: {error}",
            where=str(path),
            mend="start anew with --overwrite, or write to another --output",
        ) from error
