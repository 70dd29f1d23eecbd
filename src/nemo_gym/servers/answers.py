"""What a server needs to answer for a failure: the secrets of its run, kept out of every text."""

from collections.abc import Mapping
from typing import Protocol

from nemo_gym.config.secrets import Redactor, collect_secrets

__all__ = ["redactor_of"]


class _HasClient(Protocol):
    @property
    def server_client(self) -> object: ...


def redactor_of(server: _HasClient) -> Redactor:
    """Return the redactor for everything secret in the configuration of the server's run."""
    tree = getattr(server.server_client, "global_config_dict", None)
    return Redactor(collect_secrets(tree) if isinstance(tree, Mapping) else ())
