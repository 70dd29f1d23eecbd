"""Whether what a driver was asked for is what the running servers have. No I/O.

A configuration and the resolved one of the servers in; nothing out, or one `ConfigMistake`. What a
driver reads itself (`OWN_KEYS`) may differ. Secrets are compared by marks: 20 bits of a digest,
enough to tell two apart and too few to find one by trying.
"""

import hashlib
import json
import os.path
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields

from nemo_gym.config.document import KeyPath, dotted
from nemo_gym.config.resolved import KINDS, RunConfig
from nemo_gym.config.schema import CREDENTIAL_KEYS, RootSettings
from nemo_gym.config.secrets import hide
from nemo_gym.config.servers import is_server
from nemo_gym.config.typed import field_types
from nemo_gym.errors import ConfigMistake

__all__ = ["OWN_KEYS", "refuse_differences", "secret_marks"]

OWN_KEYS = frozenset({"head_server", "responses_create_params", "telemetry"})
"""Settings of the product that a driver of running servers has for itself."""

_ENV_FILE = "env.yaml:"
_MOST_NAMED = 4
_EMPTY: Mapping[str, object] = {}
_DEFAULTS: Mapping[KeyPath, object] = {
    (each.name,): each.default for each in fields(RootSettings) if each.default is not MISSING
}
"""What a setting of the product is where it is not set, by its path."""


def secret_marks(tree: Mapping[str, object], hidden: Mapping[str, object]) -> dict[str, str]:
    """Return the mark of every value that is not the same in `tree` and in `hidden`, by key."""
    return {dotted(path): _mark(value) for path, value in _concealed(tree, hidden, ())}


def refuse_differences(
    config: RunConfig, running: Mapping[str, object], marks: Mapping[str, str] | None, url: str
) -> None:
    """Raise `ConfigMistake` when `config` asks for something else than `running` has.

    `running` has its secrets hidden, `marks` are those of `secret_marks`; None: not told.
    """
    found = list(_Comparison(config, running, marks).differences())
    if not found:
        return
    # What a flag set stands at the top, and says more than the settings that follow from it.
    first, *others = sorted(found, key=lambda each: len(each.path))
    more = ", ".join(dotted(each.path) for each in others[:_MOST_NAMED])
    also = f"; what differs too: {more}" if others else ""
    also += f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
    origin = _origin(config, first.path)
    raise ConfigMistake(
        f"{first.said} in the running servers at {url}{also}",
        where=origin if dotted(first.path) in origin else f"{origin} ({dotted(first.path)})",
        mend=_mend(origin),
    )


def _mend(origin: str) -> str:
    if origin.startswith(_ENV_FILE):
        return (
            "say here what the running servers have (a flag goes before env.yaml), or start them "
            "again with this env.yaml"
        )
    return (
        "leave it out here: the settings of the running servers are used; for others, start the "
        "servers with them or leave out --no-serve"
    )


@dataclass(frozen=True, slots=True)
class _Difference:
    path: KeyPath
    said: str
    """What differs, up to `in the running servers`."""


@dataclass(frozen=True, slots=True)
class _Comparison:
    config: RunConfig
    running: Mapping[str, object]
    marks: Mapping[str, str] | None

    def differences(self) -> Iterator[_Difference]:
        hidden = self.config.hidden()
        concealed = {path for path, _ in _concealed(self.config.tree, hidden, ())}
        for key, value in self.config.tree.items():
            if is_server(value):
                found = self._of_server(key, value)
            elif self._is_asked(key, value):
                found = self._below(value, self.running.get(key), (key,), whole=False)
            else:
                continue
            yield from (_told(*each, concealed, self.marks or {}) for each in found)

    def _is_asked(self, key: str, value: object) -> bool:
        """Say whether a key that is no server could be meant for the servers."""
        if key in OWN_KEYS:
            return False
        if key not in field_types(RootSettings):  # only others refer to it
            return value is not None and key in self.running
        absent = self.running.get(key) is None
        if key in CREDENTIAL_KEYS:
            merely_there = _origin(self.config, (key,)).startswith(_ENV_FILE)
            return value is not None and not (absent and merely_there)
        return True

    def _of_server(self, name: str, value: object) -> Iterator["_Pair"]:
        here, there = _implementation(value), _implementation(self.running.get(name))
        if here != there:
            yield (name,), "/".join(here), "/".join(there) if there else None
            return
        ours = self._section(self.config.tree, name, here)
        theirs = self._section(self.running, name, here)
        # A section that names its entrypoint is a server; one that does not changes some settings.
        yield from self._below(ours, theirs, (name, *here), whole="entrypoint" in ours)

    def _section(
        self, tree: Mapping[str, object], name: str, below: tuple[str, ...]
    ) -> Mapping[str, object]:
        here: object = tree[name]
        for part in below:
            here = here.get(part) if isinstance(here, Mapping) else None
        return here if isinstance(here, Mapping) else _EMPTY

    def _below(
        self, here: object, there: object, path: KeyPath, *, whole: bool
    ) -> Iterator["_Pair"]:
        if isinstance(here, Mapping) or (isinstance(there, Mapping) and here is None and whole):
            ours = here if isinstance(here, Mapping) else _EMPTY
            theirs = there if isinstance(there, Mapping) else _EMPTY
            for key in dict.fromkeys([*ours, *(theirs if whole else ())]):
                yield from self._below(
                    ours.get(key), theirs.get(key), (*path, str(key)), whole=whole
                )
        elif not self._is_same(here, there, path):
            yield path, here, there

    def _is_same(self, here: object, there: object, path: KeyPath) -> bool:
        here, there = _plain(here, path), _plain(there, path)
        default = _DEFAULTS.get(path)
        here, there = (default if each is None else each for each in (here, there))
        if here is None or there is None:
            return here is there
        if self.marks is not None and dotted(path) in self.marks:
            return _mark(here) == self.marks[dotted(path)]
        if self.marks is None:
            return there in (here, self._hidden(here, path))
        return here == there

    def _hidden(self, value: object, path: KeyPath) -> object:
        tree: dict[str, object] = {path[-1]: value}
        for key in reversed(path[:-1]):
            tree = {key: tree}
        shown: object = hide(tree, self.config.secrets)
        while isinstance(shown, Mapping) and shown:
            shown = next(iter(shown.values()))
        return shown


_Pair = tuple[KeyPath, object, object]
"""A key, its value here, and its value in the running servers."""


def _told(
    path: KeyPath, here: object, there: object, concealed: set[KeyPath], marks: Mapping[str, str]
) -> _Difference:
    secret = path in concealed or dotted(path) in marks
    if secret and here is not None and there is not None:
        return _Difference(path, f"{dotted(path)} is not the same here and")
    ours, theirs = (
        "not set" if each is None else "set" if secret else repr(each) for each in (here, there)
    )
    return _Difference(path, f"{dotted(path)} is {ours} here and {theirs}")


def _implementation(value: object) -> tuple[str, ...]:
    """Return kind and implementation of a server; empty for what is none."""
    if isinstance(value, Mapping):
        for kind in KINDS:
            section = value.get(kind)
            if isinstance(section, Mapping):
                return (kind, *map(str, section))
    return ()


def _concealed(
    tree: Mapping[str, object], hidden: Mapping[str, object], path: KeyPath
) -> Iterator[tuple[KeyPath, object]]:
    """Yield path and clear value of what is hidden; both trees have the same shape."""
    for (_, clear), (key, shown) in zip(tree.items(), hidden.items(), strict=False):
        if isinstance(clear, Mapping) and isinstance(shown, Mapping):
            yield from _concealed(clear, shown, (*path, key))
        elif clear != shown and not (isinstance(clear, tuple) and list(clear) == shown):
            yield (*path, key), _plain(clear, (*path, key))


def _mark(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(b"nemo_gym secret\0" + text.encode()).hexdigest()[:5]


def _plain(setting: object, path: KeyPath) -> object:
    """Return a directory as a path: however it is spelled, it is the same one."""
    is_directory = path == ("model_call_capture_dir",) and isinstance(setting, str)
    return os.path.normpath(str(setting)) if is_directory else setting


def _origin(config: RunConfig, path: KeyPath) -> str:
    """Return where a key, or the nearest one above it, was set."""
    while path:
        if dotted(path) in config.origins:
            return config.origins[dotted(path)]
        path = path[:-1]
    return "the options of this command"
