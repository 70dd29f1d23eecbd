"""Which settings a component reads, and which dialects it speaks, found in its source.

Comes in: a server of the configuration. Goes out: the fields of the class that annotates `config`
in the entrypoint, those of the classes that one derives from, and what its server classes declare.
"""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from nemo_gym.config.annotations import fields_of_class
from nemo_gym.config.component_source import Module, Source, name_of
from nemo_gym.config.resolved import ServerInstance
from nemo_gym.config.typed import Bounds

__all__ = ["RUNTIME_FIELDS", "FieldsReader", "SettingsFields", "fields_in_source"]

RUNTIME_FIELDS: Mapping[str, object] = {
    "name": str,
    "entrypoint": str,
    "host": str | None,
    "port": Annotated[int | None, Bounds(ge=0, le=65535)],
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
    served_dialects: frozenset[str] | None = None
    """What a model server answers (`SERVED_DIALECTS`); None: it does not say."""
    called_dialects: frozenset[str] | None = None
    """What a server asks of every model server it is given (`CALLED_DIALECTS`); None: as above."""


FieldsReader = Callable[[ServerInstance], SettingsFields]

_ENDS = frozenset({"BaseModel", "object", "ABC", "Generic", "Protocol"})


def fields_in_source(server: ServerInstance) -> SettingsFields:
    """Return the fields of the config class in the entrypoint of `server`."""
    entrypoint = server.folder / str(server.settings.get("entrypoint") or "app.py")
    source = Source(server.folder)
    module = source.module(entrypoint)
    if module is None:
        return SettingsFields(accepts_any=True)
    types: dict[str, object] = {}
    configs = [found for cls in module.classes for found in source.config_classes(cls, module)]
    accepts_any = not configs
    for cls, where in configs:
        accepts_any |= _collect(source, cls, where, types)
    served, called = (_declared(module, key) for key in ("SERVED_DIALECTS", "CALLED_DIALECTS"))
    return SettingsFields(types, accepts_any, served, called)


def _declared(module: Module, key: str) -> frozenset[str] | None:
    """Return the names that the one class of the entrypoint which sets `key` sets it to.

    Not inherited: a class that derives from one of another file may speak otherwise.
    """
    found = [value for cls in module.classes if (value := _class_value(cls, key)) is not None]
    return found[0] if len(found) == 1 else None


def _class_value(cls: ast.ClassDef, key: str) -> frozenset[str] | None:
    for node in cls.body:
        match node:
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=ast.Tuple(elts=said))
                | ast.Assign(targets=[ast.Name(id=name)], value=ast.Tuple(elts=said))
            ) if name == key:
                return frozenset(map(name_of, said))
            case _:
                continue
    return None


def _collect(source: Source, cls: ast.ClassDef, module: Module, types: dict[str, object]) -> bool:
    """Add the fields of `cls` and its bases to `types`; return whether any name is accepted."""
    types.update(fields_of_class(cls, source, module))
    accepts_any = False
    for base, where in source.bases(cls, module):
        accepts_any |= any(_allows_extra(node) for node in ast.walk(base))
        unknown = {name_of(each) for each in base.bases} - _ENDS
        accepts_any |= any(source.find_class(name, where) is None for name in unknown)
    return accepts_any


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
