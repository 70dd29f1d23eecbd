"""An annotation as syntax in, the type that `typed.coerce` understands out.

`object` stands for everything that is not known for certain: any value is right then. What is
known: plain types and their unions and lists, `Literal`, enumerations, and limits of numbers.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from functools import reduce
from operator import or_
from types import GenericAlias
from typing import Annotated, Any, Literal

from nemo_gym.config.component_source import Module, Source, name_of
from nemo_gym.config.typed import Bounds, Pattern, Section

__all__ = ["fields_of_class", "type_of"]

_DEEPEST = 8
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
    "PositiveInt": Annotated[int, Bounds(gt=0)],
    "NonNegativeInt": Annotated[int, Bounds(ge=0)],
    "NegativeInt": Annotated[int, Bounds(lt=0)],
    "NonPositiveInt": Annotated[int, Bounds(le=0)],
    "PositiveFloat": Annotated[float, Bounds(gt=0)],
    "NonNegativeFloat": Annotated[float, Bounds(ge=0)],
    "NegativeFloat": Annotated[float, Bounds(lt=0)],
    "NonPositiveFloat": Annotated[float, Bounds(le=0)],
}
_LIMITS = tuple(each.name for each in fields(Bounds))
_OWN_WAYS = frozenset({"__get_pydantic_core_schema__", "__get_validators__"})
_ENUMS = frozenset({"Enum", "IntEnum", StrEnum.__name__})
_HARMLESS = frozenset({"description", "title", "default", "repr", "examples", "pattern", *_LIMITS})
"""What `Field(…)` may say in an annotation without changing which values are right."""


def type_of(node: ast.expr, source: Source, module: Module, depth: int = 0) -> Any:
    """Return the type that an annotation of `module` names."""
    if depth > _DEEPEST:
        return object

    def below(inner: ast.expr) -> Any:
        return type_of(inner, source, module, depth + 1)

    match node:
        case ast.Constant(value=None):
            return None
        case ast.BinOp(op=ast.BitOr()):
            return _union([below(node.left), below(node.right)])
        case ast.Subscript():
            return _subscript(name_of(node), _arguments(node.slice), below)
        case ast.Name() | ast.Attribute():
            return _named(node, source, module, depth)
        case _:
            return object


def fields_of_class(
    cls: ast.ClassDef, source: Source, module: Module, depth: int = 0
) -> dict[str, object]:
    """Return the fields of a class and of those it derives from, by name and by alias."""
    types: dict[str, object] = {}
    for base, where in source.bases(cls, module):
        types.update(_fields(base, source, where, depth))
        changed = set(_changed_before(base))
        types.update({name: object for name in types if name in changed or "*" in changed})
    return types


def _fields(
    cls: ast.ClassDef, source: Source, module: Module, depth: int
) -> Iterator[tuple[str, object]]:
    for node in cls.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        if node.target.id.startswith("_") or name_of(node.annotation) == "ClassVar":
            continue
        kind = _bounded(type_of(node.annotation, source, module, depth), node.value)
        yield node.target.id, kind
        for alias in _aliases(node.value):
            yield alias, kind


def _bounded(kind: Any, value: ast.expr | None) -> Any:
    """Return a field's type with the limits that its default, `Field(…, ge=1)`, gives it."""
    if kind is object or isinstance(kind, Section) or not isinstance(value, ast.Call):
        return kind
    for limit in (_bounds(value), _pattern(value)):
        kind = kind if limit is None else Annotated[kind, limit]
    return kind


def _changed_before(cls: ast.ClassDef) -> Iterator[str]:
    """Yield the fields whose values a validator may turn into what they should be; `*` for all."""
    if any(_says(node, "coerce_numbers_to_str") for node in ast.walk(cls)):
        yield "*"
    for node in cls.body:
        for call in node.decorator_list if isinstance(node, ast.FunctionDef) else []:
            if not isinstance(call, ast.Call):
                continue
            said = {
                k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)
            }
            if said.get("mode", "after") == "after" and not said.get("pre"):
                continue
            if name_of(call.func) in {"model_validator", "root_validator"}:
                yield "*"
            elif name_of(call.func) in {"field_validator", "validator"}:
                yield from map(name_of, call.args)


def _says(node: ast.AST, setting: str) -> bool:
    """Return whether a node sets something of a class's `model_config`."""
    match node:
        case ast.keyword(arg=name):
            return name == setting
        case ast.Dict(keys=keys):
            return any(isinstance(key, ast.Constant) and key.value == setting for key in keys)
        case _:
            return False


def _aliases(value: ast.expr | None) -> Iterator[str]:
    if isinstance(value, ast.Call):
        for keyword in value.keywords:
            if keyword.arg in {"alias", "validation_alias"} and isinstance(
                keyword.value, ast.Constant
            ):
                yield str(keyword.value.value)


def _named(node: ast.expr, source: Source, module: Module, depth: int) -> Any:
    name = name_of(node)
    if name in _PLAIN and module.defined(name) is None:
        return _PLAIN[name]
    found = source.find(name, module)
    if found is None:
        return object
    meaning, where = found
    if not isinstance(meaning, ast.ClassDef):
        return type_of(meaning, source, where, depth + 1)
    if _is_plain_model(meaning, source, where):
        return Section(fields_of_class(meaning, source, where, depth + _DEEPEST // 2))
    return _members_of(meaning)


def _subscript(name: str, inner: Sequence[ast.expr], below: Any) -> Any:
    match name:
        case "Optional":
            return _union([below(inner[0]), None])
        case "Union":
            return _union([below(each) for each in inner])
        case "Literal":
            return _literal([_constant(each) for each in inner])
        case "Annotated":
            return _annotated(below(inner[0]), inner[1:])
        case "list" | "List":
            item = below(inner[0])
            plain = item is object or isinstance(item, Section)
            return list if plain else GenericAlias(list, (item,))
        case _:
            return _PLAIN.get(name, object)


def _annotated(kind: Any, said: Sequence[ast.expr]) -> Any:
    """Return `kind` with its limits; `object` where something said may turn a value into it."""
    for each in said:
        if not (isinstance(each, ast.Call) and name_of(each.func) == "Field"):
            return object
        if not {keyword.arg for keyword in each.keywords} <= _HARMLESS:
            return object
        kind = _bounded(kind, each)
    return kind


def _pattern(call: ast.Call) -> Pattern | None:
    said = {k.arg: _constant(k.value) for k in call.keywords}
    regex, words = said.get("pattern"), said.get("description")
    if name_of(call.func) != "Field" or not isinstance(regex, str):
        return None
    try:
        re.compile(regex)
    except re.error:  # pydantic's regular expressions are not quite Python's
        return None
    return Pattern(regex, words if isinstance(words, str) else f"text like {regex}")


def _bounds(call: ast.Call) -> Bounds | None:
    if name_of(call.func) != "Field":
        return None
    given = {k.arg: _constant(k.value) for k in call.keywords if k.arg in _LIMITS}
    numbers = {k: v for k, v in given.items() if isinstance(v, int | float)}
    return Bounds(**numbers) if numbers else None


def _is_plain_model(cls: ast.ClassDef, source: Source, module: Module) -> bool:
    """Return whether only a section of keys can be a value of `cls`."""
    classes = [base for base, _ in source.bases(cls, module)]
    bases = {name_of(base) for each in classes for base in each.bases}
    methods = {n.name for each in classes for n in each.body if isinstance(n, ast.FunctionDef)}
    own_way = any("*" in _changed_before(each) for each in classes) or methods & _OWN_WAYS
    return "BaseModel" in bases and "RootModel" not in bases and not own_way


def _members_of(cls: ast.ClassDef) -> Any:
    """Return the values of an enumeration; `object` for a class of any other kind."""
    if not _ENUMS & {name_of(base) for base in cls.bases}:
        return object
    if any(isinstance(node, ast.FunctionDef) and node.name == "_missing_" for node in cls.body):
        return object
    return _literal([_constant(value) for value in _assigned(cls)])


def _assigned(cls: ast.ClassDef) -> Iterator[ast.expr]:
    for node in cls.body:
        match node:
            case ast.Assign(targets=[target, *_], value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                pass
            case _:
                continue
        if not name_of(target).startswith("_"):
            yield value


def _literal(values: Sequence[object]) -> Any:
    known = values and all(isinstance(value, str | int | None) for value in values)
    return Literal[tuple(values)] if known else object


def _union(kinds: Sequence[Any]) -> Any:
    if any(kind is object for kind in kinds):
        return object
    if all(kind is None for kind in kinds):
        return None
    section = next((kind for kind in kinds if isinstance(kind, Section)), None)
    if section is not None:  # null is the component's to judge
        return section if set(kinds) <= {section, None} else object
    # None itself has no `|`; a type that comes first has.
    return reduce(or_, sorted(kinds, key=lambda kind: kind is None))


def _arguments(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def _constant(node: ast.expr) -> object:
    """Return the value of a constant expression; `...` for any other, which is no setting."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ...
