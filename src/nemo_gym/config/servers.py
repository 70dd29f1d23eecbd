"""A resolved tree in, the servers of the run out: `NAME: {KIND: {IMPLEMENTATION: settings}}`."""

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nemo_gym.config.components import find_component
from nemo_gym.config.document import KeyPath, dotted
from nemo_gym.config.merge import Layers
from nemo_gym.config.nearest import did_you_mean, nearest
from nemo_gym.config.problems import Problems, one_a_line
from nemo_gym.config.resolved import KINDS, ServerInstance
from nemo_gym.errors import UnknownComponent

__all__ = [
    "MISSING",
    "Reference",
    "bind_references",
    "check_references",
    "find_servers",
    "is_server",
    "references_of",
]

MISSING = "???"
"""A value that somebody must still give."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SHORT = {
    "resources_servers": ("resources server", "--resources-server NAME"),
    "responses_api_agents": ("agent", "--agent-type NAME"),
    "responses_api_models": ("model server", "--model-type NAME"),
}


def is_server(value: object) -> bool:
    """Return whether the value of a top-level key defines a server."""
    return isinstance(value, dict) and any(kind in value for kind in KINDS)


def find_servers(
    tree: dict[str, object], layers: Layers, roots: Sequence[Path], problems: Problems
) -> tuple[ServerInstance, ...]:
    """Return the servers in the order they were defined; what is wrong with one is noted."""
    found = []
    for name, value in tree.items():
        if is_server(value):
            server = _server(name, layers, roots, problems, value)
            if server is not None:
                found.append(server)
        elif isinstance(value, dict):
            _check_kind(name, value, layers, problems)
    return tuple(found)


def _server(
    name: str, layers: Layers, roots: Sequence[Path], problems: Problems, value: object
) -> ServerInstance | None:
    definitions = list(_definitions(value))
    if len(definitions) != 1 or _NAME.fullmatch(name) is None:
        _note_definitions(name, definitions, layers, problems)
        return None
    kind, implementation, settings = definitions[0]
    path = (name, kind, implementation)
    where = f"{layers.origin(path)} ({dotted(path)})"
    if settings is None:
        settings = {}
    if not isinstance(settings, dict):
        problems.add(
            f"{dotted(path)} is not a section of settings",
            where=where,
            mend=f"write {implementation}: {{entrypoint: app.py}}",
        )
        return None
    try:
        component = find_component(roots, kind, implementation)
    except UnknownComponent as mistake:
        problems.take(UnknownComponent(mistake.what, where=where, mend=mistake.mend))
        return None
    entrypoint = settings.get("entrypoint", "app.py")
    if isinstance(entrypoint, str) and not (component.folder / entrypoint).is_file():
        here = (*path, "entrypoint") if "entrypoint" in settings else path
        problems.add(
            f"{kind}/{implementation} has no entrypoint {entrypoint}",
            where=f"{layers.origin(here)} ({dotted(here)})",
            mend=f"write {component.folder / entrypoint}, or mend the key 'entrypoint'",
        )
        return None
    _check_interpreter(settings, path, layers, problems)
    return ServerInstance(name, kind, implementation, component.folder, settings)


def _check_interpreter(
    settings: dict[str, object], path: KeyPath, layers: Layers, problems: Problems
) -> None:
    python, here = settings.get("python"), (*path, "python")
    if isinstance(python, str) and shutil.which(python) is None:
        problems.add(
            f"{dotted(here)} is {python!r}, which is no program",
            where=f"{layers.origin(here)} ({dotted(here)})",
            mend="give the python of a virtual environment in which this package is installed",
        )


def _definitions(value: object) -> Iterator[tuple[str, str, object]]:
    if not isinstance(value, dict):
        return
    for kind in KINDS:
        implementations = value.get(kind)
        if isinstance(implementations, dict):
            for implementation, settings in implementations.items():
                yield kind, implementation, settings


def _note_definitions(
    name: str, definitions: list[tuple[str, str, object]], layers: Layers, problems: Problems
) -> None:
    where = f"{layers.origin((name,))} ({name})"
    if _NAME.fullmatch(name) is None:
        mend = "use letters, digits, '.', '_' and '-', the first one a letter or a digit"
        problems.add(f"{name!r} cannot be the name of a server", where=where, mend=mend)
    elif not definitions:
        mend = "write NAME: {KIND: {IMPLEMENTATION: {entrypoint: app.py}}}"
        problems.add(f"the server {name} names no implementation", where=where, mend=mend)
    else:
        shown = " and as ".join(f"{kind}/{impl}" for kind, impl, _ in definitions)
        places = [str(layers.origin((name, kind, impl))) for kind, impl, _ in definitions]
        mend = f"keep one, or remove one with ~{name}.{definitions[0][0]}.{definitions[0][1]}"
        problems.add(f"{name} is defined twice: as {shown}", where=one_a_line(places), mend=mend)


def _check_kind(name: str, value: dict[str, object], layers: Layers, problems: Problems) -> None:
    """Note a section that looks like a server whose kind is mistyped."""
    for key, below in value.items():
        guess = nearest(key, KINDS, cutoff=0.8)
        if guess is not None and isinstance(below, dict):
            problems.add(
                f"{name}.{key} is no kind of server{did_you_mean(guess)}",
                where=f"{layers.origin((name, key))} ({name}.{key})",
                mend=f"write {guess}: instead of {key}:",
            )


@dataclass(frozen=True, slots=True)
class Reference:
    """`{type: KIND, name: NAME}` in the settings of a server."""

    path: KeyPath
    section: dict[str, object]

    @property
    def kind(self) -> str:
        """Return the kind of server that is meant."""
        return str(self.section["type"])

    @property
    def name(self) -> object:
        """Return the name of the server that is meant; `???` while it is open."""
        return self.section["name"]


def bind_references(servers: Sequence[ServerInstance]) -> frozenset[KeyPath]:
    """Fill `name: ???` of a reference where the run has exactly one server of that kind.

    Returns the paths that were filled. Changes the settings in place: they belong to the tree
    that is being built.
    """
    bound = set()
    for reference in _references(servers):
        candidates = [server.name for server in servers if server.kind == reference.kind]
        if reference.name == MISSING and len(candidates) == 1:
            reference.section["name"] = candidates[0]
            bound.add((*reference.path, "name"))
    return frozenset(bound)


def check_references(servers: Sequence[ServerInstance], layers: Layers, problems: Problems) -> None:
    """Note every reference to a server that the run does not have."""
    kinds = {server.name: server.kind for server in servers}
    broken = {name for name, value in layers.tree.items() if is_server(value)} - kinds.keys()
    for reference in _references(servers):
        # One that is open, or whose server is wrong in itself, has been noted already.
        if reference.name == MISSING or reference.name in broken:
            continue
        if kinds.get(str(reference.name)) == reference.kind:
            continue
        noun, option = _SHORT[reference.kind]
        known = [server.name for server in servers if server.kind == reference.kind]
        guess = nearest(str(reference.name), known)
        mend = f"add {option}"
        if known:
            mend = f"set {dotted(reference.path)}.name to one of {', '.join(known)}, or {mend}"
        problems.add(
            f"{reference.path[0]} wants the {noun} {reference.name!r}, which this configuration "
            f"does not define{did_you_mean(guess)}",
            where=f"{layers.origin((*reference.path, 'name'))} ({dotted(reference.path)})",
            mend=mend,
        )


def references_of(server: ServerInstance) -> Iterator[Reference]:
    """Yield the references to other servers in the settings of a server."""
    return _references_in(server.settings, (server.name, server.kind, server.implementation))


def _references(servers: Sequence[ServerInstance]) -> Iterator[Reference]:
    for server in servers:
        yield from references_of(server)


def _references_in(value: object, path: KeyPath) -> Iterator[Reference]:
    if isinstance(value, dict):
        if value.get("type") in KINDS and set(value) == {"type", "name"}:
            yield Reference(path, value)
        for key, below in value.items():
            yield from _references_in(below, (*path, key))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _references_in(below, (*path, str(index)))
