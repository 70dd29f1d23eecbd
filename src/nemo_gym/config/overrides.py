"""`key=value`, `+key=value`, `++key=value`, `~key`: text in, changes of a tree out. No I/O."""

import re
from dataclasses import dataclass
from enum import StrEnum

from nemo_gym.config.document import KeyPath, dotted, parse_value
from nemo_gym.config.merge import Layers
from nemo_gym.config.nearest import did_you_mean, nearest
from nemo_gym.errors import ConfigMistake

__all__ = ["Change", "Override", "apply_override", "format_override", "parse_override"]


class Change(StrEnum):
    """What an override does, by the sign before its key."""

    SET = ""
    """Replace a value; the key must exist."""
    ADD = "+"
    """Add a key; it must not exist."""
    PUT = "++"
    """Add a key or replace its value."""
    DELETE = "~"
    """Remove a key; it must exist."""


@dataclass(frozen=True, slots=True)
class Override:
    """One change of the configuration."""

    change: Change
    path: KeyPath
    value: object = None

    @property
    def origin(self) -> str:
        """How it is named in messages: without its value, which may be secret."""
        return f"override {self.change}{dotted(self.path)}"


_TEXT = re.compile(r"(?P<sign>~|\+\+|\+|)(?P<key>[^=\s]+?)(?P<value>=.*)?", re.DOTALL)
_INDEX = re.compile(r"\[(\d+)\]")


def parse_override(text: str) -> Override:
    """Return the change that `text` asks for; raises `ConfigMistake`."""
    parts = _TEXT.fullmatch(text)
    if parts is None:
        raise _unreadable(text)
    change = Change(parts["sign"])
    path = tuple(_INDEX.sub(r".\1", parts["key"]).split("."))
    if not all(path):
        raise _unreadable(text)
    if change is Change.DELETE:
        if parts["value"] is not None:
            raise ConfigMistake(
                f"~{parts['key']} takes no value", mend=f"write ~{parts['key']} to remove the key"
            )
        return Override(change, path)
    if parts["value"] is None:
        raise _unreadable(text)
    name = f"override {change}{parts['key']}"
    return Override(change, path, parse_value(parts["value"][1:], name))


def format_override(override: Override) -> str:
    """Return text that `parse_override` reads as the same change."""
    key = f"{override.change}{dotted(override.path)}"
    return key if override.change is Change.DELETE else f"{key}={_flow(override.value)}"


def apply_override(layers: Layers, override: Override) -> bool:
    """Make the change. Returns False when `key=value` named a key that no source has set.

    Such a key may still be a known setting with a default, which only the caller can tell; it has
    been set. Raises `ConfigMistake` for what cannot be done at all.
    """
    exists, _ = layers.get(override.path)
    if override.change is Change.DELETE:
        if not exists:
            raise _nothing_to_delete(layers, override)
        layers.delete(override.path)
        return True
    if override.change is Change.ADD and exists:
        raise ConfigMistake(
            f"{dotted(override.path)} exists already",
            where=f"{layers.origin(override.path)} and {override.origin}",
            mend=f"write {dotted(override.path)}=… to change it, or ++ to add or change",
        )
    _check_way(layers, override)
    layers.put(override.path, override.value, override.origin)
    return exists or override.change is not Change.SET


def _check_way(layers: Layers, override: Override) -> None:
    """Refuse to go through a single value, or past the end of a list."""
    for depth in range(1, len(override.path) + 1):
        exists, _ = layers.get(override.path[:depth])
        if exists:
            continue
        _, parent = layers.get(override.path[: depth - 1])
        if parent is None or isinstance(parent, dict):
            return
        above = dotted(override.path[: depth - 1])
        origin = layers.origin(override.path[: depth - 1])
        what = f"a list of {len(parent)}" if isinstance(parent, list) else "a single value"
        raise ConfigMistake(
            f"{above} is {what}, so {dotted(override.path[:depth])} cannot be set",
            where=f"{override.origin}; {above} comes from {origin}",
            mend=f"set {above} as a whole",
        )


def _nothing_to_delete(layers: Layers, override: Override) -> ConfigMistake:
    known = [dotted(path) for path in layers.origins]
    guess = nearest(dotted(override.path), known)
    return ConfigMistake(
        f"{dotted(override.path)} cannot be removed: it is not set{did_you_mean(guess)}",
        where=override.origin,
        mend=f"write ~{guess}" if guess else "leave the override out",
    )


def _unreadable(text: str) -> ConfigMistake:
    shown = text.partition("=")[0]
    component = f"; a component is named by an option, as in --resources-server {text}"
    return ConfigMistake(
        f"{shown!r} is not an override",
        where=f"argument {shown!r}",
        mend="write key=value, +key=value, ++key=value or ~key, with dots between keys and no "
        f"spaces around '='{component if text.isidentifier() else ''}",
    )


def _flow(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float):
        return _float(value)
    return str(value) if isinstance(value, int) else _text(str(value))


def _float(value: float) -> str:
    return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(repr(value), repr(value))


def _text(text: str) -> str:
    return '"' + "".join(map(_character, text)) + '"'


def _character(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    plain = " " <= char <= "~" or (char.isprintable() and char > "\xa0")
    return char if plain else f"\\U{ord(char):08x}"
