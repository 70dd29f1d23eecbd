"""The configurations that come with the product are right, and its rooms agree on their keys."""

from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from nemo_gym.config.check_root import known_root_keys
from nemo_gym.config.components import Component, builtin_root, list_components
from nemo_gym.config.fields import RUNTIME_FIELDS, fields_in_source
from nemo_gym.config.load import ConfigRequest, check_run_config
from nemo_gym.config.resolved import ServerInstance
from nemo_gym.config.schema import TelemetrySettings
from nemo_gym.config.typed import Bounds, field_types
from nemo_gym.servers.load import load_server_class
from nemo_gym.telemetry.settings import TelemetryOptions

_KEYS = known_root_keys()
_ROOT = (builtin_root(),)
AGENTS = [c.name for c in list_components(_ROOT, "responses_api_agents")]
MODELS = [c.name for c in list_components(_ROOT, "responses_api_models")]
ENVIRONMENTS = [c.name for c in list_components(_ROOT, "resources_servers")]
COMPONENTS = [c for kind in ("resources_servers", "responses_api_agents", "responses_api_models")
              for c in list_components(_ROOT, kind)]  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_environment_is_configured_with_every_model(
    tmp_path: Path, environment: str, model: str
) -> None:
    request = ConfigRequest(
        resources_servers=(environment,),
        model_types=(model,),
        model="m",
        model_url="http://127.0.0.1:1",
        model_api_key="k",
        working_dir=tmp_path,
        environ={},
    )

    assert check_run_config(request) == ()


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda c: f"{c.kind}/{c.name}")
def test_every_component_says_what_it_is_and_has_its_data(component: object) -> None:
    found = next(c for c in COMPONENTS if c is component)

    assert found.description
    assert (found.folder / "configs" / f"{found.name}.yaml").is_file()
    if found.kind == "resources_servers":
        rows = (found.folder / "data" / "example.jsonl").read_text().splitlines()
        assert len(rows) >= 5


@pytest.mark.parametrize("model", MODELS)
def test_an_unknown_setting_of_a_model_server_is_a_mistake(tmp_path: Path, model: str) -> None:
    place = f"policy_model.responses_api_models.{model}"
    request = ConfigRequest(
        model_types=(model,),
        model="m",
        model_url="http://127.0.0.1:1",
        model_api_key="k",
        overrides=(f"++{place}.no_such_setting=1",),
        working_dir=tmp_path,
        environ={},
    )

    (mistake,) = check_run_config(request)
    assert f"nothing reads {place}.no_such_setting" in mistake.what


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda c: f"{c.kind}/{c.name}")
def test_limits_and_fixed_lists_are_checked_before_a_component_is_imported(
    component: Component,
) -> None:
    instance = ServerInstance("x", component.kind, component.name, component.folder)
    config = load_server_class(instance).model_fields["config"].annotation
    assert isinstance(config, type)
    assert issubclass(config, BaseModel)

    read = fields_in_source(instance).types
    for name, info in config.model_fields.items():
        limits = {
            key: value
            for said in info.metadata
            for key in ("ge", "gt", "le", "lt")
            if (value := getattr(said, key, None)) is not None
        }
        if limits:
            found = get_args(read[name])[-1]
            assert isinstance(found, Bounds)
            assert {k: v for k, v in asdict(found).items() if v is not None} == limits
        if get_origin(info.annotation) is Literal:
            assert get_args(read[name]) == get_args(info.annotation)


def test_the_page_of_the_configuration_names_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    values = {k for k in known_root_keys() if not any(o.startswith(f"{k}.") for o in _KEYS)}

    missing = [key for key in values | set(RUNTIME_FIELDS) - {"name"} if f"`{key}" not in page]
    assert missing == []


def test_the_schema_and_telemetry_know_the_same_keys_with_the_same_defaults() -> None:
    assert _schema(TelemetrySettings) == _options(TelemetryOptions)


def _schema(cls: type) -> dict[str, object]:
    kinds = field_types(cls)
    return {
        each.name: _schema(kind)
        if isinstance(kind := kinds[each.name], type) and is_dataclass(kind)
        else each.default
        for each in fields(cls)
    }


def _options(cls: type[BaseModel]) -> dict[str, object]:
    return {
        name: _options(info.annotation)
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel)
        else info.default
        for name, info in cls.model_fields.items()
    }
