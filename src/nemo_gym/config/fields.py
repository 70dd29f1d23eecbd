"""Which settings a component reads, found in its source without running it.

A component may need packages that this process does not have, so its code is read, not imported:
the class that annotates `config` in the entrypoint, and the classes that one derives from, wherever
they can be found as files.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from nemo_gym.config.components import builtin_root
from nemo_gym.config.resolved import ServerInstance

__all__ = ["RUNTIME_FIELDS", "FieldsReader", "SettingsFields", "fields_in_source"]

RUNTIME_FIELDS: Mapping[str, object] = {
    "name": str,
    "entrypoint": str,
    "host": str | None,
    "port": int | None,
    "own_process": bool,
    "python": str | None,
}
"""Settings that every server has, because the runtime reads them."""


@dataclass(frozen=True, slots=True)
class SettingsFields:
    """The settings a component reads."""

    types: Mapping[str, object] = field(default_factory=dict)
    """Name to type; `object` where the type is not a plain one."""
    accepts_any: bool = False
    """Whether other names are settings too, or cannot be known."""


FieldsReader = Callable[[ServerInstance], SettingsFields]


def fields_in_source(server: ServerInstance) -> SettingsFields:
    """Return the fields of the config class in the entrypoint of `server`."""
    entrypoint = server.folder / str(server.settings.get("entrypoint") or "app.py")
    source = _Source(server.folder)
    module = source.module(entrypoint)
    if module is None:
        return SettingsFields(accepts_any=True)
    classes = [node for node in module.tree.body if isinstance(node, ast.ClassDef)]
    configs = [found for cls in classes for found in source.config_classes(cls, module)]
    if not configs:
        return SettingsFields(accepts_any=True)
    types: dict[str, object] = {}
    accepts_any = False
    for cls, where in configs:
        accepts_any |= source.collect(cls, where, types)
    return SettingsFields(types, accepts_any)


@dataclass(frozen=True, slots=True)
class _Module:
    tree: ast.Module
    path: Path

    def class_named(self, name: str) -> ast.ClassDef | None:
        nodes = (n for n in self.tree.body if isinstance(n, ast.ClassDef) and n.name == name)
        return next(nodes, None)

    def imported(self, name: str) -> tuple[str, str, int] | None:
        """Return module, name there and level of a name that is imported here."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return node.module or "", alias.name, node.level
        return None


@dataclass(slots=True)
class _Source:
    """Finds classes by name, following imports to files."""

    folder: Path
    _seen: dict[Path, _Module | None] = field(default_factory=dict)
    _ENDS: ClassVar[frozenset[str]] = frozenset(
        {"BaseModel", "object", "ABC", "Generic", "Protocol"}
    )

    def module(self, path: Path) -> _Module | None:
        if path not in self._seen:
            try:
                tree = ast.parse(path.read_text(encoding="utf-8"))
            except (OSError, SyntaxError, ValueError):
                self._seen[path] = None
            else:
                self._seen[path] = _Module(tree, path)
        return self._seen[path]

    def find(
        self, name: str, module: _Module, depth: int = 0
    ) -> tuple[ast.ClassDef, _Module] | None:
        """Return the class that `name` means in `module`, and the module that defines it."""
        here = module.class_named(name)
        if here is not None:
            return here, module
        target = module.imported(name)
        if target is None or depth > 8:
            return None
        for path in self._files(target[0], target[2], module):
            found = self.module(path)
            if found is not None:
                return self.find(target[1], found, depth + 1)
        return None

    def config_classes(
        self, cls: ast.ClassDef, module: _Module, depth: int = 0
    ) -> list[tuple[ast.ClassDef, _Module]]:
        """Return the class that annotates `config` in `cls`, or in a class it derives from."""
        for node in cls.body:
            if isinstance(node, ast.AnnAssign) and _name_of(node.target) == "config":
                found = self.find(_name_of(node.annotation), module)
                return [found] if found else []
        if depth > 8:
            return []
        bases = [self.find(_name_of(base), module) for base in cls.bases]
        return [c for b in bases if b for c in self.config_classes(b[0], b[1], depth + 1)][:1]

    def collect(
        self, cls: ast.ClassDef, module: _Module, types: dict[str, object], depth: int = 0
    ) -> bool:
        """Add the fields of `cls` and its bases to `types`; return whether any name is accepted."""
        accepts_any = any(_allows_extra(node) for node in ast.walk(cls))
        for base in cls.bases:
            name = _name_of(base)
            found = self.find(name, module)
            if found is not None and depth < 8:
                accepts_any |= self.collect(found[0], found[1], types, depth + 1)
            elif name not in self._ENDS:
                accepts_any = True
        types.update(_fields(cls))
        return accepts_any

    def _files(self, name: str, level: int, module: _Module) -> Iterator[Path]:
        parts = [part for part in name.split(".") if part]
        if level:
            roots = [module.path.parents[level - 1]]
        else:
            roots = [module.path.parent, self.folder, self.folder.parents[1], builtin_root().parent]
        for root in roots:
            base = root.joinpath(*parts)
            yield base.with_suffix(".py") if parts else base / "__init__.py"
            yield base / "__init__.py"


def _fields(cls: ast.ClassDef) -> Iterator[tuple[str, object]]:
    for node in cls.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        if node.target.id.startswith("_") or _name_of(node.annotation) == "ClassVar":
            continue
        kind = _type_of(node.annotation)
        yield node.target.id, kind
        for alias in _aliases(node.value):
            yield alias, kind


def _aliases(value: ast.expr | None) -> Iterator[str]:
    if isinstance(value, ast.Call):
        for keyword in value.keywords:
            if keyword.arg in {"alias", "validation_alias"} and isinstance(
                keyword.value, ast.Constant
            ):
                yield str(keyword.value.value)


def _allows_extra(node: ast.AST) -> bool:
    """Return whether a node says `extra="allow"`: a keyword, an entry of a dict, an assignment."""
    match node:
        case ast.keyword(arg="extra", value=value):
            return _is_allow(value)
        case ast.Assign(targets=[ast.Name(id="extra")], value=value):
            return _is_allow(value)
        case ast.Dict(keys=keys, values=values):
            names = (isinstance(key, ast.Constant) and key.value == "extra" for key in keys)
            return any(n and _is_allow(v) for n, v in zip(names, values, strict=True))
        case _:
            return False


def _is_allow(node: ast.expr) -> bool:
    return (isinstance(node, ast.Constant) and node.value == "allow") or (
        isinstance(node, ast.Attribute) and node.attr == "allow"
    )


def _name_of(node: ast.expr) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return node.attr
        case ast.Subscript():
            return _name_of(node.value)
        case ast.Constant(value=str()):
            return str(node.value)
        case _:
            return ""


_PLAIN: Mapping[str, Any] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "list": list,
    "List": list,
    "dict": dict,
    "Dict": dict,
    "None": None,
}


def _type_of(node: ast.expr) -> Any:
    """Return the type that an annotation names; `object` unless it is made of plain ones."""
    match node:
        case ast.Constant(value=None):
            return None
        case ast.BinOp(op=ast.BitOr()):
            return _union(_type_of(node.left), _type_of(node.right))
        case ast.Subscript() if _name_of(node) == "Optional":
            return _union(_type_of(node.slice), None)
        case ast.Name() | ast.Subscript():
            return _PLAIN.get(_name_of(node), object)
        case _:
            return object


def _union(one: Any, other: Any) -> Any:
    if object in {one, other}:
        return object
    return None if one is other is None else (one | other if one is not None else other | one)
