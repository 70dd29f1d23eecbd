"""The configuration of a run after files, references, `env.yaml`, flags and overrides are merged.

Read once, passed on as a value; it travels to child processes as JSON.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["RunConfig", "ServerInstance"]


@dataclass(frozen=True, slots=True)
class ServerInstance:
    """One server of the run: `NAME: {KIND: {IMPLEMENTATION: settings}}`."""

    name: str
    kind: str
    """`resources_servers`, `responses_api_agents` or `responses_api_models`."""
    implementation: str
    """Folder name of the component."""
    folder: Path
    """The component's folder, absolute; holds the entrypoint."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Everything under the implementation key, references resolved: `entrypoint`, `host`, …"""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """All settings of one run."""

    tree: Mapping[str, object]
    """The whole configuration, references resolved, secrets in clear: never print or serve it."""
    servers: tuple[ServerInstance, ...]
    origins: Mapping[str, str]
    """Dotted key to where it was set: `file:line`, `--flag` or `override 'text'`."""
    secrets: frozenset[str] = frozenset()
    """Values that must appear in no output, log or answer."""
