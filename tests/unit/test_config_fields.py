"""Reading the settings of a component from its source, without running it."""

from pathlib import Path
from typing import Annotated, Literal

import pytest

from nemo_gym.config.components import builtin_root
from nemo_gym.config.fields import fields_in_source
from nemo_gym.config.resolved import ServerInstance
from nemo_gym.config.typed import Bounds, Pattern, Section

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
        "e": list[str],
        "f": dict,
        "g": object,
        "h": object,
        "i": object,
    }


def test_limits_and_fixed_lists_are_part_of_the_type(tmp_path: Path) -> None:
    (tmp_path / "resources_servers" / "x").mkdir(parents=True)
    (tmp_path / "resources_servers" / "x" / "modes.py").write_text(
        "from enum import Enum\nfrom typing import Literal\nMode = Literal['a', 'b']\n"
        "class Kind(Enum):\n    _ignore_ = []\n    ONE = 'one'\n    TWO: str = 'two'\n"
        "class Level(int, Enum):\n    LOW = 1\n"
    )
    app = """
from modes import Kind, Level, Mode as Way
URL = Annotated[str, Field(pattern="^https?:", description="a URL")]

class Config(BaseModel):
    a: int = Field(default=1, ge=1)
    b: float | None = Field(None, gt=0, le=2.5)
    c: Annotated[int, Field(ge=-1, description="x")] = 0
    d: Literal["x", "y"] = "x"
    e: Way | None = None
    f: Kind = Kind.ONE
    g: list[Level] = []
    h: PositiveInt = 1
    i: Union[int, Literal["auto"]] = Field("auto", lt=9)
    j: typing.Literal[1, 2] = 1
    k: URL | list[URL]
    l: str = Field("", pattern="^a")
    m: str = Field("", pattern="(")

class Server(BaseModel):
    config: Config
"""
    found = fields_in_source(_component(tmp_path, app))
    url = Annotated[str, Pattern("^https?:", "a URL")]

    assert found.types == {
        "a": Annotated[int, Bounds(ge=1)],
        "b": Annotated[float | None, Bounds(gt=0, le=2.5)],
        "c": Annotated[int, Bounds(ge=-1)],
        "d": Literal["x", "y"],
        "e": Literal["a", "b"] | None,
        "f": Literal["one", "two"],
        "g": list[Literal[1]],
        "h": Annotated[int, Bounds(gt=0)],
        "i": Annotated[int | Literal["auto"], Bounds(lt=9)],
        "j": Literal[1, 2],
        "k": url | list[url],
        "l": Annotated[str, Pattern("^a", "text like ^a")],
        "m": str,
    }


UNKNOWN = {
    "computed-limit": "a: int = Field(ge=LEAST)",
    "computed-value": "a: Literal[NAME]",
    "validator-that-makes-a-value": "a: Annotated[int, BeforeValidator(read)]",
    "field-that-validates": "a: Annotated[int, Field(discriminator='x')]",
    "enum-of-computed-values": "a: Automatic",
    "enum-that-takes-more": "a: Lenient",
    "class": "a: Other",
    "alias-of-itself": "a: Ring",
    "validator-before": "a: int\n    @field_validator('a', mode='before')\n    def b(cls, v): ...",
    "validator-of-old": "a: int\n    @validator('a', pre=True)\n    def b(cls, v): ...",
    "numbers-as-text": "a: int\n    model_config = ConfigDict(coerce_numbers_to_str=True)",
    "numbers-as-text-in-a-dict": "a: int\n    model_config = {'coerce_numbers_to_str': True}",
    "model-validator": "a: int\n    @model_validator(mode='before')\n    def b(cls, v): ...",
}


@pytest.mark.parametrize("line", UNKNOWN.values(), ids=UNKNOWN)
def test_what_may_be_right_is_not_judged(tmp_path: Path, line: str) -> None:
    app = f"""
class Automatic(StrEnum):
    A = auto()

class Lenient(Enum):
    A = "a"
    def _missing_(cls, value): ...

class Other: ...

Ring = Ring

class Config(BaseModel):
    {line}

class Server(BaseModel):
    config: Config
"""
    found = fields_in_source(_component(tmp_path, app)).types["a"]

    assert found in {object, int}
    assert (found is int) == ("LEAST" in line)


def test_a_section_of_its_own_has_types_too(tmp_path: Path) -> None:
    app = """
from nemo_gym.config_types import ModelServerRef

class Inner(BaseModel):
    level: int = Field(1, ge=1)
    deeper: Optional["Inner"] = None

class Ring(BaseModel):
    a: Ring
    b: Ring

class Config(BaseModel):
    inner: Inner
    maybe: Inner | None = None
    either: Inner | str = ""
    many: list[Inner] = []
    ring: Ring
    model_server: ModelServerRef

class Server(BaseModel):
    config: Config
"""
    types = fields_in_source(_component(tmp_path, app)).types

    for name in ("inner", "maybe"):
        section = types[name]
        assert isinstance(section, Section)
        assert section.types["level"] == Annotated[int, Bounds(ge=1)]
    assert (types["either"], types["many"]) == (object, list)
    assert isinstance(types["ring"], Section)
    reference = types["model_server"]
    assert isinstance(reference, Section)
    assert reference.types == {"type": Literal["responses_api_models"], "name": str}


OPEN_SECTIONS = {
    "a root model": "class Inner(RootModel):\n    root: list[int]\n",
    "a validator before": (
        "class Inner(BaseModel):\n    @model_validator(mode='before')\n    def f(cls, v): ...\n"
    ),
    "a schema of its own": (
        "class Inner(BaseModel):\n    def __get_pydantic_core_schema__(cls, s, h): ...\n"
    ),
    "no model": "class Inner:\n    a: int\n",
}


@pytest.mark.parametrize("inner", OPEN_SECTIONS.values(), ids=OPEN_SECTIONS)
def test_a_class_that_may_be_made_of_anything_is_not_judged(tmp_path: Path, inner: str) -> None:
    app = f"{inner}class C(BaseModel):\n    a: Inner\nclass S:\n    config: C\n"

    assert fields_in_source(_component(tmp_path, app)).types == {"a": object}


def test_a_validator_that_comes_after_leaves_the_type_as_it_is(tmp_path: Path) -> None:
    app = (
        "class C(BaseModel):\n    a: int\n    @field_validator('a')\n    def b(cls, v): ...\n"
        "class S:\n    config: C\n"
    )

    assert fields_in_source(_component(tmp_path, app)).types == {"a": int}


def test_dialects_are_those_that_the_class_of_the_entrypoint_declares(tmp_path: Path) -> None:
    app = """
class S(BaseModel):
    SERVED_DIALECTS: ClassVar[tuple[str, ...]] = ("chat", "messages")
    CALLED_DIALECTS = ("responses",)
"""
    found = fields_in_source(_component(tmp_path, app))

    assert found.served_dialects == frozenset({"chat", "messages"})
    assert found.called_dialects == frozenset({"responses"})


def test_dialects_that_only_a_base_of_another_file_declares_are_not_known(tmp_path: Path) -> None:
    app = """
from nemo_gym.responses_api_models.anthropic_model.app import AnthropicModel

class S(AnthropicModel):
    pass
"""
    assert fields_in_source(_component(tmp_path, app)).served_dialects is None


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
