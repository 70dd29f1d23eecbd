"""YAML text in; a tree of plain values and the line of every key out.

The YAML is what people in this field write: PyYAML's, with `1e-3` a number, dates, `12:30` and
numbers with leading zeros (`007` is an id) left as text, keys always text, and a key given twice
refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from nemo_gym.config.typed import fits_json
from nemo_gym.errors import ConfigMistake

if TYPE_CHECKING:
    from yaml import SafeLoader as _BaseLoader
else:
    _BaseLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

__all__ = ["Document", "KeyPath", "dotted", "parse_document", "parse_value", "read_document"]

KeyPath = tuple[str, ...]
"""Keys from the root down; an index of a list is its number as text."""

_BOOL = re.compile(r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF")
_INT = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)")
_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_NULL = re.compile(r"~|null|Null|NULL|")
_MOST_VALUES = 500_000
"""Values of one document, aliases written out; ten lines of aliases can stand for billions."""
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null")}
_NESTED_TAGS = {f"{_TAG}map", f"{_TAG}seq"}


class _Loader(_BaseLoader):
    """The loader with the rules of the module's docstring."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own class attribute


def _add(name: str, pattern: re.Pattern[str], first: list[str]) -> None:
    whole = re.compile(rf"(?:{pattern.pattern})\Z")
    _Loader.add_implicit_resolver(f"{_TAG}{name}", whole, first)


_add("bool", _BOOL, list("yYnNtTfFoO"))
_add("int", _INT, list("-+0123456789"))
_add("float", _FLOAT, list("-+0123456789."))
_add("merge", re.compile("<<"), ["<"])
_add("null", _NULL, ["~", "n", "N", ""])


@dataclass(frozen=True, slots=True)
class Document:
    """One source of configuration."""

    name: str
    """As shown to the user: a path, as they would type it."""
    tree: Mapping[str, object]
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    """Line of each key, from 1."""

    def place(self, path: KeyPath) -> str:
        """Return `file:line` of a key, or of the nearest one above it."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.name}:{self.lines[path]}" if path else self.name


def dotted(path: KeyPath) -> str:
    """Return a path as the user writes it."""
    return ".".join(path)


def read_document(path: Path, name: str) -> Document:
    """Return the document in a file; a file that is missing or not readable is a mistake."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigMistake(f"there is no file {name}", mend="check the path") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigMistake(
            f"{name} is not UTF-8 text", where=f"{name}:{line}", mend="save the file as UTF-8"
        ) from None
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigMistake(
            f"{name} cannot be read: {reason}",
            where=name,
            mend="let this user read it, or name another file",
        ) from None
    return parse_document(text, name)


def parse_document(text: str, name: str) -> Document:
    """Return the tree of `text` and its lines; an empty text is an empty tree."""
    lines: dict[KeyPath, int] = {}
    value = _parse(text, name, lines)
    if value is None:
        return Document(name, {})
    if not isinstance(value, dict):
        raise ConfigMistake(
            f"{name} holds a {_kind(value)}, not a mapping of keys to values",
            where=f"{name}:1",
            mend="write lines of the form 'key: value'",
        )
    return Document(name, value, lines)


def parse_value(text: str, name: str) -> object:
    """Return one value, such as the right-hand side of an override; empty text is empty text."""
    return _parse(text, name, {}) if text.strip() else ""


def _parse(text: str, name: str, lines: dict[KeyPath, int]) -> object:
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        return None if node is None else _Builder(loader, name, lines).build(node, ())
    except yaml.MarkedYAMLError as error:
        raise _malformed(error, name, text) from None
    except yaml.YAMLError as error:
        raise ConfigMistake(
            f"{name} holds a character that YAML does not allow: {str(error).splitlines()[0]}",
            where=name,
            mend="remove it, or write it as an escape inside double quotes",
        ) from None
    finally:
        if loader is not None:
            loader.dispose()


def _malformed(error: yaml.MarkedYAMLError, name: str, text: str) -> ConfigMistake:
    mark = error.problem_mark or error.context_mark
    where = name if mark is None else f"{name}:{mark.line + 1}, column {mark.column + 1}"
    problem = error.problem or error.context or "it cannot be parsed"
    mend = "check indentation, colons and quotes there; quote a value that holds ': ' or '#'"
    lines = text.splitlines()
    if mark is not None and mark.line < len(lines) and lines[mark.line][mark.column :][:1] == "\t":
        mend = "indent with spaces, not tabs"
    return ConfigMistake(f"{name} is not valid YAML: {problem}", where=where, mend=mend)


class _Builder:
    """Turns nodes into plain values and notes the line of every key on the way."""

    def __init__(self, loader: _Loader, name: str, lines: dict[KeyPath, int]) -> None:
        self._loader = loader
        self._name = name
        self._lines = lines
        self._open: set[int] = set()
        self._built = 0

    def build(self, node: yaml.Node, path: KeyPath) -> object:
        self._built += 1
        if self._built > _MOST_VALUES:
            raise self._mistake("too many values", node, "do not repeat aliases within aliases")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if node.tag not in _NESTED_TAGS:
            raise self._mistake(f"a value of type {node.tag!r}", node, "leave the tag out")
        if id(node) in self._open:
            raise self._mistake("an alias that contains itself", node, "write the value out")
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return self._sequence(node, path)
            return self._mapping(node, path)
        finally:
            self._open.discard(id(node))

    def _scalar(self, node: yaml.ScalarNode) -> object:
        if node.tag not in _PLAIN_TAGS:
            shown = node.tag.removeprefix(_TAG)
            raise self._mistake(f"a value of type {shown!r}", node, "use text, numbers or booleans")
        try:
            value: object = self._loader.construct_object(node)
        except ValueError:
            raise self._mistake(
                "a number that is none", node, "write a number, or quote it"
            ) from None
        if isinstance(value, int) and not fits_json(value):
            raise self._mistake("a whole number of more than 64 bits", node, "quote it")
        return value

    def _sequence(self, node: yaml.SequenceNode, path: KeyPath) -> list[object]:
        values = []
        for index, item in enumerate(node.value):
            below = (*path, str(index))
            self._lines[below] = item.start_mark.line + 1
            values.append(self.build(item, below))
        return values

    def _mapping(self, node: yaml.Node, path: KeyPath) -> dict[str, object]:
        if not isinstance(node, yaml.MappingNode):  # pragma: no cover - YAML has three node kinds
            raise TypeError(node)
        self._refuse_twins(node, path)
        self._loader.flatten_mapping(node)
        tree = {}
        for key_node, value_node in node.value:
            below = (*path, self._key(key_node))
            self._lines[below] = key_node.start_mark.line + 1
            tree[below[-1]] = self.build(value_node, below)
        return tree

    def _refuse_twins(self, node: yaml.MappingNode, path: KeyPath) -> None:
        first: dict[str, int] = {}
        for key_node, _ in node.value:
            key = self._key(key_node)
            line = key_node.start_mark.line + 1
            if key in first and key_node.tag != f"{_TAG}merge":
                raise ConfigMistake(
                    f"{dotted((*path, key))} is given twice",
                    where=f"{self._name}:{first[key]} and {self._name}:{line}",
                    mend="keep one of them",
                )
            first[key] = line

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._mistake("a key that is not text", node, "write 'key: value'")
        return str(node.value)

    def _mistake(self, what: str, node: yaml.Node, mend: str) -> ConfigMistake:
        mark = node.start_mark
        return ConfigMistake(
            f"{self._name} holds {what}",
            where=f"{self._name}:{mark.line + 1}, column {mark.column + 1}",
            mend=mend,
        )


def _kind(value: object) -> str:
    return "list" if isinstance(value, list) else "single value"
