"""Servers that ask for a dialect which their model server does not speak: known before they run.

A component may declare what it speaks: a model server `SERVED_DIALECTS`, any other
`CALLED_DIALECTS`, each of which it asks of every model server in its settings. One that declares
nothing may speak anything, and fits.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nemo_gym.config.components import list_components
from nemo_gym.config.document import dotted
from nemo_gym.config.fields import FieldsReader, SettingsFields
from nemo_gym.config.merge import Layers
from nemo_gym.config.resolved import ServerInstance
from nemo_gym.config.servers import Reference, references_of
from nemo_gym.errors import ConfigMistake

__all__ = ["find_misfits"]

_MODELS = "responses_api_models"
_NAMES = {"responses": "Responses", "chat": "Chat Completions", "messages": "Messages"}


def find_misfits(
    servers: Sequence[ServerInstance],
    fields: Mapping[str, SettingsFields],
    layers: Layers,
    roots: Sequence[Path],
    fields_of: FieldsReader,
) -> dict[str, ConfigMistake]:
    """Return what is wrong with each server whose calls cannot be answered, by its name.

    What needs such a server is one too, for the same reason. `fields` are those of the servers by
    name; `fields_of` reads those of other model types in `roots`, to say which would do.
    """
    models = {server.name: server for server in servers if server.kind == _MODELS}
    found = {}
    for server in servers:
        called = fields[server.name].called_dialects or frozenset()
        for reference in references_of(server):
            model = models.get(str(reference.name))
            served = None if model is None else fields[model.name].served_dialects
            if model is not None and served is not None and not called <= served:
                mend = _mend(called, served, sorted(_that_serve(called, roots, fields_of)))
                found[server.name] = ConfigMistake(
                    f"{server.name} calls {_listed(called - served, 'and')}, which {model.name} "
                    f"({model.implementation}) does not serve: it serves {_listed(served, 'and')}",
                    where=_where(reference, layers),
                    mend=mend,
                )
    _spread(found, servers)
    return found


def _spread(found: dict[str, ConfigMistake], servers: Sequence[ServerInstance]) -> None:
    """Add the servers that refer to one that is found, and those that refer to these."""
    before = -1
    while before != len(found):
        before = len(found)
        for server in servers:
            needed = (str(reference.name) for reference in references_of(server))
            broken = next((found[name] for name in needed if name in found), None)
            if broken is not None:
                found.setdefault(server.name, broken)


def _where(reference: Reference, layers: Layers) -> str:
    return f"{layers.origin((*reference.path, 'name'))} ({dotted(reference.path)})"


def _mend(called: frozenset[str], served: frozenset[str], fitting: Sequence[str]) -> str:
    other = f"an agent that calls {_listed(served, 'or')}"
    return f"use --model-type {' or '.join(fitting)}, or {other}" if fitting else f"use {other}"


def _that_serve(
    called: frozenset[str], roots: Sequence[Path], fields_of: FieldsReader
) -> Iterator[str]:
    for component in list_components(roots, _MODELS):
        name = component.name
        served = fields_of(ServerInstance(name, _MODELS, name, component.folder)).served_dialects
        if served is not None and called <= served:
            yield name


def _listed(dialects: frozenset[str], word: str) -> str:
    return f" {word} ".join(sorted(_NAMES.get(each, each) for each in dialects))
