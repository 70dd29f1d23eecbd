"""Keys that nothing reads, and settings of a wrong type: a resolved configuration in, mistakes out.

A key is read when it is a setting of the product (`schema`), a setting of a server that the
server's implementation knows (`fields`), named by some `${…}`, or declared in a file: what a file
declares, a component may read for itself. In a file, only a key that is surely a slip is refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nemo_gym.config.check_root import known_root_keys, wrong_type
from nemo_gym.config.document import KeyPath, dotted
from nemo_gym.config.fields import RUNTIME_FIELDS, SettingsFields
from nemo_gym.config.merge import Layers
from nemo_gym.config.nearest import did_you_mean, nearest, nearest_key, typo_of
from nemo_gym.config.overrides import Change, Override
from nemo_gym.config.problems import Problems
from nemo_gym.config.resolved import KINDS, ServerInstance
from nemo_gym.config.servers import MISSING
from nemo_gym.config.typed import Section, WrongType, coerce

__all__ = ["FREE_SECTIONS", "KeyCheck"]

FREE_SECTIONS = frozenset({"responses_create_params"})
"""Settings of the product under which any key is allowed."""


@dataclass(slots=True)
class KeyCheck:
    """Judges every key of one configuration."""

    layers: Layers
    declared: frozenset[KeyPath]
    """Keys that files set, before overrides."""
    referenced: frozenset[KeyPath]
    servers: Mapping[str, ServerInstance]
    fields: Mapping[str, SettingsFields]
    """The settings that each server reads, by the server's name."""
    problems: Problems

    def override(self, override: Override, *, existed: bool) -> None:
        """Note an override of a key that is not set (without a sign) or that nothing reads."""
        if override.change is Change.DELETE:
            return
        unread = [path for path in _leaves(override.value, override.path) if not self._read(path)]
        if not unread:
            return
        path = unread[0]
        guess = self._guess(path)
        if existed:
            what = f"nothing reads {dotted(path)}{did_you_mean(guess)}"
            mend = "leave it out; where a component reads it, declare it in a --config file"
        else:
            what = f"there is no key {dotted(path)}{did_you_mean(guess)}"
            mend = f"a key is added with ++{dotted(path)}=…, where something reads it"
        if guess is not None:
            mend = f"write {override.change}{guess}=…"
        self.problems.add(what, where=override.origin, mend=mend)

    def files(self) -> None:
        """Note keys of files that are surely slips, and keys of closed sections nobody knows."""
        roots = {key.split(".")[0] for key in known_root_keys()}
        for path in sorted(self.declared, key=len):
            if self._read_elsewhere(path) or path not in self.layers.origins:
                continue
            if len(path) == 1 and path[0] not in self.servers:
                guess = typo_of(path[0], roots)
            elif self._in_closed_section(path):
                guess = self._guess(path) or ""
            else:
                guess = self._slip_of_setting(path)
            if guess is not None:
                self._note_file(path, guess or None)

    def settings(self) -> None:
        """Note settings of servers that have a wrong type, or that nobody has given yet."""
        for server in self.servers.values():
            types = {**RUNTIME_FIELDS, **self.fields[server.name].types}
            place = (server.name, server.kind, server.implementation)
            for key, value in server.settings.items():
                self._setting((*place, key), value, types.get(key, object))

    def _setting(self, path: KeyPath, value: object, expected: object) -> None:
        if value is None or value == MISSING:
            return  # null is the component's to judge; `???` is reported by itself
        if isinstance(expected, Section) and isinstance(value, dict):
            for key, below in value.items():
                self._setting((*path, key), below, expected.types.get(key, object))
            return
        try:
            coerce(value, expected)
        except WrongType:
            self.problems.add(**wrong_type(path, value, expected, self.layers))

    def _read(self, path: KeyPath) -> bool:
        if path[0] in FREE_SECTIONS or dotted(path) in known_root_keys():
            return True
        if self._read_elsewhere(path):
            return True
        if path[0] in self.servers:
            return self._read_by_server(path)
        return path in self.declared and not self._in_closed_section(path)

    def _read_elsewhere(self, path: KeyPath) -> bool:
        return any(
            path[: len(named)] == named or named[: len(path)] == path for named in self.referenced
        )

    def _read_by_server(self, path: KeyPath) -> bool:
        server, fields = self.servers[path[0]], self.fields[path[0]]
        place = (server.name, server.kind, server.implementation)
        if len(path) <= len(place):
            return path == place[: len(path)]
        if path[: len(place)] != place:
            return False
        key = path[len(place)]
        return fields.accepts_any or key in RUNTIME_FIELDS or key in fields.types

    def _in_closed_section(self, path: KeyPath) -> bool:
        """Whether the path lies in a section of the schema, and the schema does not know it."""
        known = known_root_keys()
        if path[0] in FREE_SECTIONS or dotted(path) in known:
            return False
        return len(path) > 1 and any(key.startswith(f"{path[0]}.") for key in known)

    def _slip_of_setting(self, path: KeyPath) -> str | None:
        if len(path) != 4 or path[0] not in self.servers or self._read_by_server(path):
            return None
        guess = typo_of(path[3], {**RUNTIME_FIELDS, **self.fields[path[0]].types})
        return None if guess is None else dotted((*path[:3], guess))

    def _note_file(self, path: KeyPath, guess: str | None) -> None:
        self.problems.add(
            f"nothing reads {dotted(path)}{did_you_mean(guess)}",
            where=f"{self.layers.origin(path)} ({dotted(path)})",
            mend=f"write {guess}" if guess else "take the key out",
        )

    def _guess(self, path: KeyPath) -> str | None:
        siblings = [known for known in self._known() if known[:-1] == path[:-1] and known != path]
        guess = nearest(path[-1], [known[-1] for known in siblings])
        if guess is not None and len(path) > 1:
            return dotted((*path[:-1], guess))
        return nearest_key(
            dotted(path), {dotted(known) for known in self._known()} - {dotted(path)}
        )

    def _known(self) -> Iterator[KeyPath]:
        yield from (tuple(key.split(".")) for key in known_root_keys())
        yield from (path for path in self.declared if path[0] not in self.servers)
        yield from self.referenced
        for name, server in self.servers.items():
            place = (name, server.kind, server.implementation)
            yield place
            for key in {*RUNTIME_FIELDS, *self.fields[name].types, *server.settings} - {"name"}:
                if self._read_by_server((*place, key)):
                    yield (*place, key)


def _leaves(value: object, path: KeyPath) -> Iterator[KeyPath]:
    """Return the paths of the values that an override sets; a server's own sections are opened."""
    if isinstance(value, dict) and value and len(path) < 4 and not _is_setting(path):
        for key, below in value.items():
            yield from _leaves(below, (*path, key))
    else:
        yield path


def _is_setting(path: KeyPath) -> bool:
    return len(path) > 3 and path[1] in KINDS
