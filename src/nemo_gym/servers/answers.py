"""What a server needs to answer for a failure: the secrets of its run, kept out of every text."""

from collections.abc import Iterable, Mapping
from typing import Protocol
from weakref import WeakKeyDictionary

from nemo_gym.config.secrets import Redactor, collect_secrets

__all__ = ["note_secrets", "redactor_of", "secrets_of"]

# By client: that is what a server has of its run, and its class stays as a stranger wrote it.
_SECRETS: WeakKeyDictionary[object, frozenset[str]] = WeakKeyDictionary()


class _HasClient(Protocol):
    @property
    def server_client(self) -> object: ...


def note_secrets(client: object, secrets: Iterable[str]) -> None:
    """Note the secrets of the run that `client` belongs to, beside those its settings show."""
    _SECRETS[client] = frozenset(secrets)


def redactor_of(server: _HasClient) -> Redactor:
    """Return the redactor for everything secret in the configuration of the server's run."""
    return Redactor(secrets_of(server))


def secrets_of(server: _HasClient) -> frozenset[str]:
    """Return everything secret in the configuration of the server's run."""
    client = server.server_client
    tree = getattr(client, "global_config_dict", None)
    shown = collect_secrets(tree) if isinstance(tree, Mapping) else frozenset[str]()
    return shown | _noted(client)


def _noted(client: object) -> frozenset[str]:
    try:
        return _SECRETS.get(client, frozenset())
    except TypeError:
        # A component's own test may hand in None, or anything else that nothing can refer to.
        return frozenset()
