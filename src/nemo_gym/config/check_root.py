"""A resolved tree in, mistakes about the product's own settings out; values become their type."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from pathlib import Path

from nemo_gym.config.document import KeyPath, dotted
from nemo_gym.config.merge import Layers
from nemo_gym.config.problems import Problems
from nemo_gym.config.schema import RootSettings
from nemo_gym.config.secrets import collect_secrets, is_secret_path
from nemo_gym.config.typed import WrongType, coerce, describe, field_types
from nemo_gym.errors import ConfigMistake

__all__ = ["SectionCheck", "check_root", "known_root_keys", "none_wrong", "wrong_type"]

SectionCheck = Callable[[Mapping[str, object]], Iterable[ConfigMistake]]
"""Says what is wrong with a section whose types are right; `where` may name a key of it."""


def none_wrong(_section: Mapping[str, object]) -> Iterable[ConfigMistake]:
    """Find nothing."""
    return ()


def known_root_keys() -> frozenset[str]:
    """Return the dotted key of every setting of the product, sections and values."""
    return frozenset(dotted(path) for path in _known(RootSettings, ()))


def check_root(
    tree: dict[str, object],
    layers: Layers,
    problems: Problems,
    telemetry_mistakes: SectionCheck = none_wrong,
) -> None:
    """Check types and rules; a value that YAML or the environment gave as text becomes its type."""
    before = len(problems.found)
    _check_section(RootSettings, tree, (), layers, problems)
    if len(problems.found) == before:
        _check_capture(tree, layers, problems)
        _check_telemetry(tree, layers, problems, telemetry_mistakes)


def wrong_type(path: KeyPath, value: object, expected: object, layers: Layers) -> dict[str, str]:
    """Return what, where and how to mend for a value of the wrong type; no secret is shown."""
    source = layers.source(path)
    secret = is_secret_path(path) or is_secret_path(source) or collect_secrets({"": value})
    shown = "a value" if secret else _shown(value, expected)
    mend = f"give {dotted(source)} {describe(expected)}"
    if isinstance(value, int | float) and not isinstance(value, bool) and _fits("x", expected):
        mend = f"write the value of {dotted(source)} in quotes"
    return {
        "what": f"{dotted(path)} must be {describe(expected)}, and is {shown}",
        "where": f"{layers.origin(source)} ({dotted(source)})",
        "mend": mend,
    }


def _check_section(
    cls: type, section: dict[str, object], path: KeyPath, layers: Layers, problems: Problems
) -> None:
    for name, expected in field_types(cls).items():
        if name not in section:
            continue
        here, value = (*path, name), section[name]
        if isinstance(expected, type) and is_dataclass(expected):
            if isinstance(value, dict):
                _check_section(expected, value, here, layers, problems)
            elif value is None:
                section[name] = {}
            else:
                problems.add(**wrong_type(here, value, Mapping, layers))
            continue
        try:
            section[name] = coerce(value, expected)
        except WrongType:
            problems.add(**wrong_type(here, value, expected, layers))


def _check_capture(tree: Mapping[str, object], layers: Layers, problems: Problems) -> None:
    enabled, folder = tree.get("observability_enabled"), tree.get("model_call_capture_dir")
    if enabled and not folder:
        problems.add(
            "observability_enabled is true, but model_call_capture_dir is not set",
            where=f"{layers.origin(('observability_enabled',))} (observability_enabled)",
            mend='add ++model_call_capture_dir="$(pwd)/results/model-calls", an absolute directory',
        )
    elif isinstance(folder, str) and folder and not Path(folder).is_absolute():
        problems.add(
            f"model_call_capture_dir is {folder!r}, which is not absolute",
            where=f"{layers.origin(('model_call_capture_dir',))} (model_call_capture_dir)",
            mend=f'write ++model_call_capture_dir="$(pwd)/{folder}"',
        )


def _check_telemetry(
    tree: Mapping[str, object], layers: Layers, problems: Problems, mistakes: SectionCheck
) -> None:
    section = tree.get("telemetry")
    if not isinstance(section, dict):
        return
    for mistake in mistakes(section):
        source = layers.source(tuple((mistake.where or "").split(".")))
        origin = layers.origins.get(source)
        where = mistake.where if origin is None else f"{origin} ({dotted(source)})"
        problems.add(mistake.what, where=where, mend=mistake.mend)


def _known(cls: type, path: KeyPath) -> list[KeyPath]:
    found = []
    for name, kind in field_types(cls).items():
        found.append((*path, name))
        if isinstance(kind, type) and is_dataclass(kind):
            found += _known(kind, (*path, name))
    return found


def _shown(value: object, expected: object) -> str:
    match value:
        case dict():
            return "a section of keys"
        case list():
            unfit = (item for item in value if not _fits([item], expected))
            item = next(unfit, None) if _fits([], expected) else None
            return "a list" if item is None else f"a list with {_shown(item, object)}"
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case _:
            return repr(value)


def _fits(value: object, expected: object) -> bool:
    try:
        coerce(value, expected)
    except WrongType:
        return False
    return True
