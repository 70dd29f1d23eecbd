"""From the file of a component to its module. Any number of components may call theirs `app.py`.

A component of `<root>/<kind>/<name>/` is imported as `<kind>.<name>.app`, where `<kind>` is a
package whose path holds every root that was met: its modules have names of their own, can import
each other relatively or by that name, and can be found again by a worker process. Any other file,
or one that is hidden behind another root's component, gets a module name made from its path.

Its folder is importable too, so that `from helpers import …` finds the file beside `app.py`. What
came from there under a plain name is taken out of `sys.modules` afterwards: the next component may
have a `helpers` of its own.
"""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from nemo_gym.errors import ConfigMistake
from nemo_gym.servers.component_code import component_code

__all__ = ["import_component"]

_PACKAGE_FOLDER = Path(__file__).resolve().parents[1]


def import_component(path: Path, kind: str, name: str) -> ModuleType:
    """Import the file `path` of the component `name`; raises `ConfigMistake` when that fails."""
    if not path.is_file():
        raise ConfigMistake(
            f"the component {name} has no {path.name}",
            where=str(path),
            mend="write the file, or set `entrypoint` to the one that defines the server",
        )
    path = path.resolve()
    try:
        if path.is_relative_to(_PACKAGE_FOLDER):
            return importlib.import_module(_built_in_name(path))
        with _folder_importable(path.parent), component_code(name, "imported", path.parent):
            return _import_from_root(path, kind, name) or _import_alone(path, name)
    except ImportError as exc:
        raise _not_importable(path, name, exc) from exc
    except SyntaxError as exc:
        raise ConfigMistake(
            f"{name} is not Python: {exc.msg}",
            where=f"{exc.filename}:{exc.lineno}",
            mend="correct the line",
        ) from exc


def _built_in_name(path: Path) -> str:
    parts = path.relative_to(_PACKAGE_FOLDER).with_suffix("").parts
    return ".".join((_PACKAGE_FOLDER.name, *parts))


def _import_from_root(path: Path, kind: str, name: str) -> ModuleType | None:
    """Import by package name; None when that name belongs to another file."""
    folder = path.parent
    if (folder.parent.name, folder.name) != (kind, name):
        return None
    _root_package(folder.parent)
    module_name = f"{kind}.{name}.{path.stem}"
    spec = importlib.util.find_spec(module_name)
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != path:
        return None
    return importlib.import_module(module_name)


def _root_package(kind_folder: Path) -> None:
    """Make `kind_folder` part of the package of its name, and importable in worker processes."""
    package = sys.modules.get(kind_folder.name)
    if package is None:
        package = ModuleType(kind_folder.name)
        package.__path__ = []
        sys.modules[kind_folder.name] = package
    paths = package.__path__
    if str(kind_folder) not in paths and isinstance(paths, list):
        paths.append(str(kind_folder))
    if str(kind_folder.parent) not in sys.path:
        sys.path.append(str(kind_folder.parent))


def _import_alone(path: Path, name: str) -> ModuleType:
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    module_name = f"nemo_gym_component_{name}_{digest}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module


@contextmanager
def _folder_importable(folder: Path) -> Iterator[None]:
    """Let plain imports find the files of `folder`, and forget their plain names afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        # At the end it still serves imports inside functions, but hides nothing installed.
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
        for module_name in set(sys.modules) - before:
            if "." not in module_name and _lies_in(sys.modules[module_name], folder):
                _forget(module_name)


def _lies_in(module: ModuleType, folder: Path) -> bool:
    origin = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), None)
    if origin is None or module.__name__.startswith("nemo_gym_component_"):
        return False
    return Path(origin).is_relative_to(folder)


def _forget(module_name: str) -> None:
    for known in list(sys.modules):
        if known == module_name or known.startswith(f"{module_name}."):
            del sys.modules[known]


def _not_importable(path: Path, name: str, exc: ImportError) -> ConfigMistake:
    requirements = path.parent / "requirements.txt"
    if isinstance(exc, ModuleNotFoundError) and exc.name:
        what = f"{name} needs the package {exc.name.partition('.')[0]!r}, which is not installed"
        mend = (
            f"pip install -r {requirements}"
            if requirements.is_file()
            else f"install it into the environment of {sys.executable}"
        )
        return ConfigMistake(what, where=str(path), mend=mend)
    return ConfigMistake(f"{name} cannot be imported: {exc}", where=str(path), mend="see above")
