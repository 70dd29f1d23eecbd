"""Where components live and how they are found: folders in, names and paths out.

A root is a folder that holds `resources_servers/`, `responses_api_agents/` or
`responses_api_models/`; a component is a folder in one of these. Roots are searched in order:
`--search-dir`, the working directory, roots of configuration files, the built-in components.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nemo_gym.config.nearest import did_you_mean, nearest
from nemo_gym.config.problems import one_a_line
from nemo_gym.config.resolved import KINDS
from nemo_gym.errors import ConfigMistake, UnknownComponent, UserMistake

__all__ = [
    "Component",
    "builtin_root",
    "component_roots",
    "config_of",
    "find_component",
    "list_components",
    "resolve_input_path",
    "root_of_config",
]

_NOUNS = {
    "resources_servers": ("resources server", "gym list resources-servers"),
    "responses_api_agents": ("agent type", "gym list agents"),
    "responses_api_models": ("model type", "gym list models"),
}
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")


@dataclass(frozen=True, slots=True)
class Component:
    """One component folder."""

    kind: str
    name: str
    folder: Path
    root: Path

    @property
    def description(self) -> str:
        """The first sentence of its README that says more than its name; empty without one."""
        return _first_sentence(_lines_of_readme(self), self.name)


def builtin_root() -> Path:
    """Return the folder that holds the built-in components: the package itself."""
    return Path(__file__).resolve().parents[1]


def component_roots(search_dirs: Sequence[Path], working_dir: Path) -> tuple[Path, ...]:
    """Return the roots in the order they are searched; refuses a search directory that is none."""
    for given in search_dirs:
        if not (working_dir / given).is_dir():
            raise ConfigMistake(
                f"there is no directory {given}", where="--search-dir", mend="check the path"
            )
    chosen = [(working_dir / given).resolve() for given in search_dirs]
    return tuple(dict.fromkeys([*chosen, working_dir.resolve(), builtin_root()]))


def root_of_config(path: Path) -> Path | None:
    """Return the root that `<root>/<kind>/<name>/configs/x.yaml` lies in; None when it does not."""
    folder = path.resolve().parent
    if folder.name == "configs" and folder.parent.parent.name in KINDS:
        return folder.parents[2]
    return None


def list_components(roots: Sequence[Path], kind: str) -> tuple[Component, ...]:
    """Return the components of a kind by name; of two with one name, the one found first."""
    found: dict[str, Component] = {}
    for root in roots:
        for folder in _folders(root / kind):
            found.setdefault(folder.name, Component(kind, folder.name, folder, root))
    return tuple(found[name] for name in sorted(found))


def find_component(roots: Sequence[Path], kind: str, name: str) -> Component:
    """Return the component of that name; raises `UnknownComponent` with the likeliest other."""
    for root in roots:
        folder = root / kind / name
        if _plain(name) and _is_component(folder):
            return Component(kind, name, folder, root)
    noun, command = _NOUNS[kind]
    known = [component.name for component in list_components(roots, kind)]
    elsewhere = [k for k in KINDS if k != kind and any((r / k / name).is_dir() for r in roots)]
    hint = f"; {name} is a component of {elsewhere[0]}" if _plain(name) and elsewhere else ""
    raise UnknownComponent(
        f"there is no {noun} {name!r}{did_you_mean(nearest(name, known))}{hint}",
        where=one_a_line(str(root / kind) for root in roots),
        mend=f"{command} shows what there is; --search-dir DIR adds a place to look",
    )


def config_of(component: Component) -> Path:
    """Return the component's own configuration: `configs/<name>.yaml`, or the only one there."""
    folder = component.folder / "configs"
    own = folder / f"{component.name}.yaml"
    if own.is_file():
        return own
    others = sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])
    if len(others) == 1:
        return others[0]
    shown = ", ".join(
        f"--config {component.kind}/{component.name}/configs/{p.name}" for p in others
    )
    raise ConfigMistake(
        f"{component.kind}/{component.name} has no configuration of its own",
        where=str(own),
        mend=f"choose one: {shown}" if others else f"write {own}",
    )


def resolve_input_path(
    text: str, *, working_dir: Path | None = None, search_dirs: Sequence[Path] = ()
) -> Path:
    """Return the file that a path of the command line means.

    Looked for in the working directory first, then under `--search-dir` and the built-in
    components. Raises `UserMistake` that names every place looked in.
    """
    here = working_dir or Path.cwd()
    given = Path(text).expanduser()
    if given.is_absolute():
        tried = [given]
    else:
        tried = [here / given, *(here / d / given for d in search_dirs), builtin_root() / given]
    # The functions of os.path answer where those of Path raise: a name too long, no permission.
    for path in tried:
        if os.path.isfile(path):
            return path
    other = next((path for path in tried if os.path.exists(path)), None)
    if other is not None:
        kind = "directory" if os.path.isdir(other) else "pipe or device"
        raise UserMistake(
            f"{text} is a {kind}, not a file",
            where=str(other),
            mend="name a file; it is read more than once",
        )
    beside = [name for path in tried for name in _names_in(path.parent) if name != given.name]
    raise UserMistake(
        f"there is no file {text}{did_you_mean(nearest(given.name, beside))}",
        where=one_a_line(map(str, tried)),
        mend="check the path",
    )


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _folders(parent: Path) -> Iterator[Path]:
    if parent.is_dir():
        yield from (folder for folder in sorted(parent.iterdir()) if _is_component(folder))


def _is_component(folder: Path) -> bool:
    return _plain(folder.name) and ((folder / "app.py").is_file() or (folder / "configs").is_dir())


def _plain(name: str) -> bool:
    """Return whether a name is one folder's: no path, nothing hidden."""
    return bool(name) and "/" not in name and name[0] not in "._"


def _lines_of_readme(component: Component) -> Iterator[str]:
    try:
        with (component.folder / "README.md").open(encoding="utf-8", errors="replace") as file:
            yield from file
    except OSError:
        return


def _first_sentence(lines: Iterator[str], name: str) -> str:
    """Return the first heading or sentence that says more than `name`, without its markup."""
    said: list[str] = []
    for line in lines:
        text = line.strip()
        heading = text.startswith("#")
        if said and (heading or not text):
            break
        text = text.lstrip("#").strip()
        if text and (said or _letters(text) != _letters(name)):
            said.append(text)
        if heading and said:
            break
    plain = _LINK.sub(r"\1", " ".join(said)).replace("**", "").replace("`", "")
    return _SENTENCE_END.split(plain, maxsplit=1)[0]


def _letters(text: str) -> str:
    return "".join(char for char in text.lower() if char.isalnum())
