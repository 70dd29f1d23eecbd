"""A merged tree with `${…}` in, a tree of plain values out. Reads the environment it is handed.

The syntax is the one people in this field know from OmegaConf (`reference_text`). Every value that
cannot be resolved is noted with the place it stands at, so that all of them are reported at once.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nemo_gym.config.document import KeyPath, dotted, parse_value
from nemo_gym.config.merge import Layers, copy_of
from nemo_gym.config.nearest import did_you_mean, nearest_key
from nemo_gym.config.problems import Problems, one_a_line
from nemo_gym.config.reference_text import (
    BadReference,
    KeyReference,
    Parts,
    ResolverCall,
    parse_text,
)
from nemo_gym.config.secrets import is_secret_key
from nemo_gym.errors import ConfigMistake

__all__ = ["Resolved", "resolve"]

_MOST_VALUES = 500_000
_LONGEST_TEXT = 10_000_000
"""Characters; forty lines that each repeat the one before could stand for terabytes."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A tree without references, and what resolving it showed."""

    tree: dict[str, object]
    referenced: frozenset[KeyPath]
    """Keys that some `${…}` names."""
    secrets: frozenset[str]
    """Values read from environment variables whose names say that they are secret."""
    wanted: Mapping[str, tuple[str, ...]]
    """Dotted keys that are not set to the places that want them, as `file:line (key)`."""


def resolve(
    layers: Layers,
    environ: Mapping[str, str],
    problems: Problems,
    needed: Callable[[str], bool] = lambda key: True,
) -> Resolved:
    """Resolve every reference of the merged tree; what cannot be is None and noted.

    References to keys that are not set are returned in `wanted`, not noted: the caller knows what
    to say about each. A top-level key that is not `needed`, and that no needed one draws from, may
    want a variable or a key that is not set: credentials of servers that this run does not start.
    """
    work = _Resolver(layers, environ, problems)
    found = {key: work.at((key,)) for key in layers.tree if needed(key)}
    work.lenient = True
    found |= {key: work.at((key,)) for key in layers.tree if key not in found}
    tree = {key: found[key] for key in layers.tree}
    wanted = {key: tuple(places) for key, places in work.wanted.items()}
    return Resolved(tree, frozenset(work.referenced), frozenset(work.secrets), wanted)


class _Unresolved(Exception):
    """A value that depends on one already noted as a problem."""


@dataclass(slots=True)
class _Resolver:
    layers: Layers
    environ: Mapping[str, str]
    problems: Problems
    referenced: set[KeyPath] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)
    wanted: dict[str, list[str]] = field(default_factory=dict)
    lenient: bool = False
    """Whether what is not set is passed over in silence."""
    _done: dict[KeyPath, object] = field(default_factory=dict)
    _failed: set[KeyPath] = field(default_factory=set)
    _open: list[KeyPath] = field(default_factory=list)
    _repeated: int = 0
    """Values that references have put in other places, too."""

    def at(self, path: KeyPath) -> object:
        """Return the resolved value at a path that exists, None where it cannot be resolved."""
        try:
            return self._at(path)
        except _Unresolved:
            return None

    def _at(self, path: KeyPath) -> object:
        if path in self._failed:
            raise _Unresolved
        if path in self._done:
            return copy_of(self._done[path])
        if path in self._open:
            self._cycle(path)
        self._open.append(path)
        try:
            _, raw = self.layers.get(path)
            value = self._value(raw, path)
        except _Unresolved:
            self._failed.add(path)
            raise
        finally:
            self._open.pop()
        self._done[path] = value
        return copy_of(value)

    def _value(self, raw: object, path: KeyPath) -> object:
        if isinstance(raw, dict):
            return {key: self._below((*path, key)) for key in raw}
        if isinstance(raw, list):
            return [self._below((*path, str(index))) for index in range(len(raw))]
        if isinstance(raw, str) and "${" in raw:
            try:
                return self._parts(parse_text(raw), path)
            except BadReference as error:
                raise self._unresolved(
                    f"{dotted(path)} holds a reference that cannot be read: {error}",
                    path,
                    "write ${key}, ${oc.env:VAR} or ${oc.env:VAR,default}; \\${ for a literal '${'",
                ) from None
            except RecursionError:
                raise self._unresolved(
                    f"{dotted(path)} holds references within references too deep to follow",
                    path,
                    "write the value out",
                ) from None
        return raw

    def _below(self, path: KeyPath) -> object:
        """Resolve one child, so that one that fails does not hide the problems of the others.

        Only while the tree itself is walked: a reference to a section fails as a whole.
        """
        try:
            return self._at(path)
        except _Unresolved:
            if len(self._open) > 1 and not self._walking():
                raise
            return None

    def _walking(self) -> bool:
        """Whether every value under way lies inside the one before it."""
        pairs = zip(self._open, self._open[1:], strict=False)
        return all(inner[: len(outer)] == outer for outer, inner in pairs)

    def _parts(self, parts: Parts, path: KeyPath) -> object:
        if len(parts) == 1:
            return self._part(parts[0], path)
        text = "".join(self._as_text(self._part(part, path), path) for part in parts)
        if len(text) > _LONGEST_TEXT:
            raise self._unresolved(
                f"{dotted(path)} becomes longer than {_LONGEST_TEXT:,} characters",
                path,
                "do not repeat references within references",
            )
        return text

    def _counted(self, value: object, path: KeyPath) -> object:
        """Return a section or a list that a reference repeats, while there is room for it."""
        if self._repeated > _MOST_VALUES:
            raise _Unresolved  # said already
        self._repeated += _size(value)
        if self._repeated > _MOST_VALUES:
            raise self._unresolved(
                f"{dotted(path)} makes the configuration larger than {_MOST_VALUES:,} values",
                path,
                "do not repeat references within references",
            )
        return value

    def _part(self, part: str | KeyReference | ResolverCall, path: KeyPath) -> object:
        if isinstance(part, str):
            return part
        if isinstance(part, KeyReference):
            return self._lookup(self._target(part, path), path)
        resolver = _RESOLVERS.get(part.name)
        if resolver is None:
            raise self._unresolved(
                f"{dotted(path)} asks for '${{{part.name}:…}}', which is not known",
                path,
                f"known are {', '.join(sorted(_RESOLVERS))}",
            )
        return resolver(self, part, path)

    def _target(self, reference: KeyReference, path: KeyPath) -> KeyPath:
        text = str(self._parts(reference.path, path))
        name = re.sub(r"\[([^\]]*)\]", r".\1", text)
        dots = len(name) - len(name.lstrip("."))
        base = path[: len(path) - dots] if dots else ()
        if dots > len(path) or name.endswith(".") or ".." in name[dots:]:
            raise BadReference(f"{text!r} names no key")
        return (*base, *name[dots:].split("."))

    def _found(self, target: KeyPath, path: KeyPath) -> tuple[object] | None:
        """Return the value of a key that is referred to; None where it is not set."""
        self.referenced.add(target)
        exists, _ = self.layers.get(target)
        return (
            (self._counted(self._at(target), path),) if exists else self._through_reference(target)
        )

    def _lookup(self, target: KeyPath, path: KeyPath) -> object:
        found = self._found(target, path)
        if found is not None:
            return found[0]
        if not self.lenient:
            place = f"{self.layers.origin(path)} ({dotted(path)})"
            self.wanted.setdefault(dotted(target), []).append(place)
        raise _Unresolved

    def _through_reference(self, target: KeyPath) -> tuple[object] | None:
        """Return the value below a section that is itself a reference: `a: ${b}`, `${a.x}`."""
        for depth in range(len(target) - 1, 0, -1):
            exists, raw = self.layers.get(target[:depth])
            if exists and not isinstance(raw, str):
                return None  # a section, known as it stands: resolving it all may lead back here
            if exists:
                found, value = Layers({"it": self._at(target[:depth])}).get(("it", *target[depth:]))
                return (value,) if found else None
        return None

    def _as_text(self, value: object, path: KeyPath) -> str:
        if isinstance(value, dict | list):
            raise self._unresolved(
                f"{dotted(path)} puts a whole section into a text",
                path,
                "refer to one value, or make the reference the whole value",
            )
        return str(value)

    def _cycle(self, path: KeyPath) -> None:
        ring = [*self._open[self._open.index(path) :], path]
        places = [f"{self.layers.origin(each)} ({dotted(each)})" for each in ring]
        shown = " → ".join(dotted(each) for each in ring)
        self.problems.add(
            f"references form a ring: {shown}",
            where=one_a_line(places),
            mend="give one of them a value of its own",
        )
        self._failed.update(ring)
        raise _Unresolved

    def _unresolved(self, what: str, path: KeyPath, mend: str) -> _Unresolved:
        self.problems.add(what, where=f"{self.layers.origin(path)} ({dotted(path)})", mend=mend)
        return _Unresolved()

    def argument(self, call: ResolverCall, index: int, path: KeyPath) -> object:
        """Return one argument: text in quotes as it is, anything else as a YAML value."""
        value = self._parts(call.arguments[index], path)
        if call.quoted[index] or not isinstance(value, str):
            return value
        return parse_value(value, dotted(path))

    def check_count(self, call: ResolverCall, path: KeyPath, most: int) -> None:
        """Refuse a call with no argument, or with too many."""
        if not 1 <= len(call.arguments) <= most:
            wanted = "one argument" if most == 1 else f"1 to {most} arguments"
            raise self._unresolved(f"${{{call.name}:…}} takes {wanted}", path, "mend the reference")

    def env(self, call: ResolverCall, path: KeyPath) -> object:
        """`${oc.env:VAR}` or `${oc.env:VAR,default}`: always text, or null as a default."""
        self.check_count(call, path, 2)
        name = str(self._parts(call.arguments[0], path))
        if name in self.environ:
            value = self.environ[name]
            if is_secret_key(name) and value:
                self.secrets.add(value)
            return value
        if len(call.arguments) == 1 and self.lenient:
            raise _Unresolved
        if len(call.arguments) == 1:
            guess = nearest_key(name, self.environ)
            raise self._unresolved(
                f"the environment variable {name} is not set{did_you_mean(guess)}",
                path,
                f"export {name}=… or write ${{oc.env:{name},default}}",
            )
        default = self.argument(call, 1, path)
        return None if default is None else str(default)

    def decode(self, call: ResolverCall, path: KeyPath) -> object:
        """`${oc.decode:TEXT}`: the text read as a YAML value."""
        self.check_count(call, path, 1)
        value = self._parts(call.arguments[0], path)
        if not isinstance(value, str):
            return value
        try:
            return parse_value(value, dotted(path))
        except ConfigMistake as mistake:
            raise self._unresolved(mistake.what, path, "quote the text, or mend it") from None

    def select(self, call: ResolverCall, path: KeyPath) -> object:
        """`${oc.select:key}` or `${oc.select:key,default}`: null or the default when not set."""
        self.check_count(call, path, 2)
        target = self._target(KeyReference(call.arguments[0]), path)
        found = self._found(target, path)
        if found is not None:
            return found[0]
        return self.argument(call, 1, path) if len(call.arguments) == 2 else None


_RESOLVERS: Mapping[str, Callable[[_Resolver, ResolverCall, KeyPath], object]] = {
    "oc.decode": _Resolver.decode,
    "oc.env": _Resolver.env,
    "oc.select": _Resolver.select,
}


def _size(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1
