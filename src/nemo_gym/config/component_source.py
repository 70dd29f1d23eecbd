"""A component's Python files in, its classes and names as syntax out; nothing of it is run.

A component may need packages that this process does not have, so its code is read, not imported.
Names are followed through imports to wherever they can be found as files.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym.config.components import builtin_root

__all__ = ["Module", "Source", "name_of"]

_DEEPEST = 8
"""Imports and bases that are followed in a row; rings end here."""


@dataclass(frozen=True, slots=True)
class Module:
    """One file."""

    tree: ast.Module
    path: Path

    @property
    def classes(self) -> list[ast.ClassDef]:
        """Return the classes that the file defines at its top."""
        return [node for node in self.tree.body if isinstance(node, ast.ClassDef)]

    def defined(self, name: str) -> ast.ClassDef | ast.expr | None:
        """Return the class or the expression that the top of the file gives a name."""
        for node in self.tree.body:
            match node:
                case ast.ClassDef(name=found) if found == name:
                    return node
                case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                    return value
                case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if (
                    found == name
                ):
                    return value
                case _:
                    continue
        return None

    def imported(self, name: str) -> tuple[str, str, int] | None:
        """Return module, name there and level of a name that is imported here."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return node.module or "", alias.name, node.level
        return None


@dataclass(slots=True)
class Source:
    """Finds what names mean in the files of one component, following imports."""

    folder: Path
    _seen: dict[Path, Module | None] = field(default_factory=dict)

    def module(self, path: Path) -> Module | None:
        """Return a file's syntax; None for one that is not there or is no Python."""
        if path not in self._seen:
            try:
                tree = ast.parse(path.read_text(encoding="utf-8"))
            except (OSError, SyntaxError, ValueError):
                self._seen[path] = None
            else:
                self._seen[path] = Module(tree, path)
        return self._seen[path]

    def find(
        self, name: str, module: Module, depth: int = 0
    ) -> tuple[ast.ClassDef | ast.expr, Module] | None:
        """Return what `name` means in `module`, and the module that defines it."""
        here = module.defined(name)
        if here is not None:
            return here, module
        target = module.imported(name)
        if target is None or depth > _DEEPEST:
            return None
        for path in self._files(target[0], target[2], module):
            found = self.module(path)
            if found is not None:
                return self.find(target[1], found, depth + 1)
        return None

    def find_class(self, name: str, module: Module) -> tuple[ast.ClassDef, Module] | None:
        """Return the class that `name` means in `module`, and the module that defines it."""
        found = self.find(name, module)
        if found is None or not isinstance(found[0], ast.ClassDef):
            return None
        return found[0], found[1]

    def config_classes(
        self, cls: ast.ClassDef, module: Module, depth: int = 0
    ) -> list[tuple[ast.ClassDef, Module]]:
        """Return the class that annotates `config` in `cls`, or in a class it derives from."""
        for node in cls.body:
            if isinstance(node, ast.AnnAssign) and name_of(node.target) == "config":
                found = self.find_class(name_of(node.annotation), module)
                return [found] if found else []
        if depth > _DEEPEST:
            return []
        bases = [self.find_class(name_of(base), module) for base in cls.bases]
        return [c for b in bases if b for c in self.config_classes(b[0], b[1], depth + 1)][:1]

    def bases(self, cls: ast.ClassDef, module: Module) -> Iterator[tuple[ast.ClassDef, Module]]:
        """Yield a class and those it derives from, the remotest first, as far as they are found."""
        yield from self._bases(cls, module, 0)

    def _bases(
        self, cls: ast.ClassDef, module: Module, depth: int
    ) -> Iterator[tuple[ast.ClassDef, Module]]:
        for base in cls.bases:
            found = self.find_class(name_of(base), module)
            if found is not None and depth < _DEEPEST:
                yield from self._bases(*found, depth + 1)
        yield cls, module

    def _files(self, name: str, level: int, module: Module) -> Iterator[Path]:
        parts = [part for part in name.split(".") if part]
        if level:
            roots = [module.path.parents[level - 1]]
        else:
            roots = [module.path.parent, self.folder, self.folder.parents[1], builtin_root().parent]
        for root in roots:
            base = root.joinpath(*parts)
            yield base.with_suffix(".py") if parts else base / "__init__.py"
            yield base / "__init__.py"


def name_of(node: ast.expr) -> str:
    """Return the last name of an expression, what stands in brackets aside; empty for none."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return node.attr
        case ast.Subscript():
            return name_of(node.value)
        case ast.Constant(value=str()):
            return str(node.value)
        case _:
            return ""
