"""Reading the settings of a component from its source, without running it."""

from pathlib import Path

import pytest

from nemo_gym.config.components import builtin_root
from nemo_gym.config.fields import fields_in_source
from nemo_gym.config.resolved import ServerInstance

HEAD = "from pydantic import BaseModel, ConfigDict, Field\n"


def test_fields_have_the_plain_types_of_their_annotations(tmp_path: Path) -> None:
    app = """
class Config(BaseModel):
    a: int
    b: float = 1.0
    c: str | None = None
    d: Optional[bool] = None
    e: list[str] = []
    f: dict[str, int] = {}
    g: SomethingElse = None
    h: "int" = 3
    i: int | SomethingElse = 3
    _hidden: int = 1
    KIND: ClassVar[str] = ""
    no_annotation = 3

class Server(BaseModel):
    config: Config
"""
    found = fields_in_source(_component(tmp_path, app))

    assert not found.accepts_any
    assert found.types == {
        "a": int,
        "b": float,
        "c": str | None,
        "d": bool | None,
        "e": list,
        "f": dict,
        "g": object,
        "h": object,
        "i": object,
    }


def test_fields_of_bases_are_found_through_imports(tmp_path: Path) -> None:
    (tmp_path / "resources_servers" / "x").mkdir(parents=True)
    (tmp_path / "resources_servers" / "x" / "shared.py").write_text(
        f"{HEAD}class Shared(BaseModel):\n    shared: int = 1\n"
    )
    app = """
from shared import Shared as Base
from nemo_gym.base_resources_server import BaseResourcesServerConfig, SimpleResourcesServer

class Config(Base, BaseResourcesServerConfig):
    own: int = 1

class Server(SimpleResourcesServer):
    config: Config
"""
    found = fields_in_source(_component(tmp_path, app))

    assert not found.accepts_any
    assert {"own", "shared", "name", "host", "port", "entrypoint"} <= set(found.types)


def test_a_server_without_a_config_of_its_own_has_that_of_its_base(tmp_path: Path) -> None:
    app = """
from nemo_gym.base_resources_server import SimpleResourcesServer

class Server(SimpleResourcesServer):
    pass
"""
    found = fields_in_source(_component(tmp_path, app))

    assert not found.accepts_any
    assert "port" in found.types


def test_an_alias_is_a_name_too(tmp_path: Path) -> None:
    app = (
        'class Config(BaseModel):\n    a: int = Field(1, alias="b")\nclass S:\n    config: Config\n'
    )

    assert set(fields_in_source(_component(tmp_path, app)).types) == {"a", "b"}


SERVER = "class Server:\n    config: Config\n"
OPEN = {
    "config-dict": 'class Config(BaseModel):\n    model_config = ConfigDict(extra="allow")\n',
    "keyword": 'class Config(BaseModel, extra="allow"):\n    a: int\n',
    "dict": 'class Config(BaseModel):\n    model_config = {"extra": "allow"}\n',
    "inner-class": "class Config(BaseModel):\n    class Config:\n        extra = Extra.allow\n",
    "unknown-base": "class Config(Elsewhere):\n    a: int\n",
    "unknown-class": "from elsewhere import Config\n",
    "no-class": "",
    "no-python": "def broken(:\n",
}


@pytest.mark.parametrize("config", OPEN.values(), ids=OPEN)
def test_what_cannot_be_known_accepts_any_setting(tmp_path: Path, config: str) -> None:
    assert fields_in_source(_component(tmp_path, config + SERVER)).accepts_any


def test_a_component_is_never_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    app = f"open({str(marker)!r}, 'w')\nclass C(BaseModel):\n    a: int\nclass S:\n    config: C\n"
    fields_in_source(_component(tmp_path, app))

    assert not marker.exists()


def test_two_classes_that_derive_from_each_other_end(tmp_path: Path) -> None:
    app = "class A(B):\n    a: int\nclass B(A):\n    b: int\nclass S:\n    config: A\n"

    assert fields_in_source(_component(tmp_path, app)).types == {"a": int, "b": int}


def test_the_built_in_root_is_the_package() -> None:
    assert (builtin_root() / "errors.py").is_file()


def _component(root: Path, app: str) -> ServerInstance:
    folder = root / "resources_servers" / "x"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "app.py").write_text(HEAD + app)
    return ServerInstance("x", "resources_servers", "x", folder, {})
