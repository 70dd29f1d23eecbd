"""The architecture page is true: it names every room, and nothing that is not there."""

import importlib
import re
from pathlib import Path

import pytest

import nemo_gym

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
PACKAGE = Path(nemo_gym.__file__).parent
ROOMS = sorted(p.name for p in PACKAGE.iterdir() if (p / "__init__.py").is_file())
DOORS = sorted(p.stem for p in PACKAGE.glob("*.py") if not p.stem.startswith("__"))
_NAME = re.compile(rf"`((?:{'|'.join(ROOMS + DOORS)})(?:\.\w+)+)")


def _exists(dotted: str) -> bool:
    """Return whether a dotted name below the package is a module, or a name in one."""
    module, _, name = f"nemo_gym.{dotted}".rpartition(".")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError:
        return _exists(dotted.rpartition(".")[0])
    if hasattr(found, name):
        return True
    try:
        importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_is_on_the_page(room: str) -> None:
    assert f"`{room}/" in PAGE


@pytest.mark.parametrize("door", DOORS)
def test_every_front_door_is_on_the_page(door: str) -> None:
    assert f"`{door}`" in PAGE or f"`{door}.py`" in PAGE


def test_every_folder_and_name_on_the_page_is_there() -> None:
    folders = set(re.findall(r"`(\w+)/`", PAGE))
    names = {name for name in _NAME.findall(PAGE) if not name.endswith(("_", ".py"))}

    assert folders <= {*ROOMS, "dialects"}
    assert len(names) > 20
    assert [name for name in sorted(names) if not _exists(name)] == []
