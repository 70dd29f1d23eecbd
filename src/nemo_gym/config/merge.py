"""Documents in, one tree out, with the place every value came from. No I/O.

Mappings are merged key by key; anything else (a list too) replaces what was there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from nemo_gym.config.document import Document, KeyPath

__all__ = ["Layers", "copy_of"]

_LONE_REFERENCE = re.compile(r"\$\{(\w[\w.]*)\}")


@dataclass(slots=True)
class Layers:
    """What has been merged so far; grows while a configuration is read, then is read only."""

    tree: dict[str, object] = field(default_factory=dict)
    origins: dict[KeyPath, str] = field(default_factory=dict)
    """Where each key was set: `file:line`, `--flag` or `override ++key`."""

    def add(self, document: Document) -> None:
        """Lay one document over what is there."""
        self._merge(self.tree, document.tree, (), document)

    def get(self, path: KeyPath) -> tuple[bool, object]:
        """Return whether there is something at `path`, and what."""
        here: object = self.tree
        for part in path:
            found, here = _child(here, part)
            if not found:
                return False, None
        return True, here

    def put(self, path: KeyPath, value: object, origin: str) -> None:
        """Set the value at `path`; every part above it is a mapping, a list or missing."""
        here: object = self.tree
        for depth, part in enumerate(path[:-1], 1):
            found, below = _child(here, part)
            if not found or below is None:
                below = {}
                _set_child(here, part, below)
                self.origins[path[:depth]] = origin
            here = below
        _set_child(here, path[-1], value)
        self._forget(path)
        self._note(path, value, origin)

    def delete(self, path: KeyPath) -> None:
        """Remove what is at `path`; it is there."""
        _, parent = self.get(path[:-1])
        if isinstance(parent, list):
            del parent[int(path[-1])]
        elif isinstance(parent, dict):
            del parent[path[-1]]
        self._forget(path)

    def origin(self, path: KeyPath) -> str | None:
        """Return where `path`, or the nearest key above it, was set."""
        while path:
            if path in self.origins:
                return self.origins[path]
            path = path[:-1]
        return None

    def source(self, path: KeyPath) -> KeyPath:
        """Return the key whose own value `path` has: where `${key}` leads that is all of it."""
        seen = set()
        while path not in seen:
            seen.add(path)
            _, value = self.get(path)
            lone = _LONE_REFERENCE.fullmatch(value) if isinstance(value, str) else None
            target = tuple(lone[1].split(".")) if lone else ()
            path = target if target and self.get(target)[0] else path
        return path

    def _merge(
        self, base: dict[str, object], over: Mapping[str, object], path: KeyPath, source: Document
    ) -> None:
        for key, value in over.items():
            here = (*path, key)
            there = base.get(key)
            if isinstance(there, dict) and isinstance(value, dict):
                self._merge(there, value, here, source)
                continue
            base[key] = copy_of(value)
            self._forget(here)
            self._note_document(here, value, source)

    def _note_document(self, path: KeyPath, value: object, source: Document) -> None:
        self.origins[path] = source.place(path)
        for part, below in _children(value):
            self._note_document((*path, part), below, source)

    def _note(self, path: KeyPath, value: object, origin: str) -> None:
        self.origins[path] = origin
        for part, below in _children(value):
            self._note((*path, part), below, origin)

    def _forget(self, path: KeyPath) -> None:
        depth = len(path)
        for known in [p for p in self.origins if p[:depth] == path]:
            del self.origins[known]


def copy_of(value: object) -> object:
    """Return a copy that shares no mapping or list with the original."""
    if isinstance(value, Mapping):
        return {str(key): copy_of(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [copy_of(below) for below in value]
    return value


def _children(value: object) -> list[tuple[str, object]]:
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list):
        return [(str(index), below) for index, below in enumerate(value)]
    return []


def _child(here: object, part: str) -> tuple[bool, object]:
    if isinstance(here, dict) and part in here:
        return True, here[part]
    if isinstance(here, list) and part.isdecimal() and int(part) < len(here):
        return True, here[int(part)]
    return False, None


def _set_child(here: object, part: str, value: object) -> None:
    if isinstance(here, list):
        here[int(part)] = value
    elif isinstance(here, dict):
        here[part] = value
