"""The configuration of a run after files, references, `env.yaml`, flags and overrides are merged.

Read once, passed on as a value; it travels to child processes as JSON. Nothing that prints one
shows a secret: `repr` leaves settings out, `RunConfig.hidden` is the tree for eyes and for HTTP.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym.config.secrets import hide
from nemo_gym.errors import ConfigMistake

__all__ = ["KINDS", "RunConfig", "ServerInstance"]

KINDS = ("resources_servers", "responses_api_agents", "responses_api_models")
"""The kinds of servers; also the folders of a component root."""


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
    settings: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Everything under the implementation key, references resolved: `entrypoint`, `host`, …"""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """All settings of one run."""

    tree: Mapping[str, object] = field(repr=False)
    """The whole configuration, references resolved, secrets in clear: never print or serve it."""
    servers: tuple[ServerInstance, ...]
    origins: Mapping[str, str] = field(repr=False)
    """Dotted key to where it was set: `file:line`, `--flag` or `override ++key`."""
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """Values that must appear in no output, log or answer."""
    misfits: Mapping[str, ConfigMistake] = field(default_factory=dict, repr=False)
    """Servers whose calls cannot be answered as things are configured, by name; they may idle."""

    def hidden(self) -> dict[str, object]:
        """Return the tree with every secret hidden, for display and for HTTP."""
        return hide(self.tree, self.secrets)

    def to_json(self) -> str:
        """Return everything, secrets in clear, for a pipe to a process of the same user."""
        servers = [
            [s.name, s.kind, s.implementation, str(s.folder), s.settings] for s in self.servers
        ]
        return json.dumps(
            {
                "tree": self.tree,
                "servers": servers,
                "origins": self.origins,
                "secrets": sorted(self.secrets),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "RunConfig":
        """Return what `to_json` wrote."""
        data = json.loads(text)
        servers = (
            ServerInstance(name, kind, implementation, Path(folder), settings)
            for name, kind, implementation, folder, settings in data["servers"]
        )
        return cls(data["tree"], tuple(servers), data["origins"], frozenset(data["secrets"]))
