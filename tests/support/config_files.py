"""A component root on disk, small enough to read in a test."""

from pathlib import Path

from nemo_gym.config.load import ConfigRequest

__all__ = ["ask", "write_root"]

MCQA = """\
mcqa:
  resources_servers:
    mcqa: {entrypoint: app.py}
mcqa_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: mcqa}
      model_server: {type: responses_api_models, name: policy_model}
"""
MODEL = """\
policy_model:
  responses_api_models:
    some_model:
      entrypoint: app.py
      base_url: ${policy_base_url}
      api_key: ${policy_api_key}
      model: ${policy_model_name}
"""
OTHER_MODEL = MODEL.replace("some_model", "other_model")
ENV = """\
policy_base_url: http://127.0.0.1:1/v1
policy_api_key: sk-planted-key
policy_model_name: some-name
"""
MCQA_APP = """\
from typing import ClassVar, Literal, Optional

from pydantic import BaseModel, Field


class Limits(BaseModel):
    most: int = Field(default=1, ge=1)


class Config(BaseModel):
    entrypoint: str = "app.py"
    limits: Limits = Limits()
    max_tries: int = Field(default=1, ge=1)
    style: Literal["letter", "word"] = "letter"
    weights: list[int] = []
    grader: Optional[str] = None
    strict: bool = False
    KIND: ClassVar[str] = "x"


class Server(BaseModel):
    config: Config
"""
MODEL_APP = """\
from pydantic import BaseModel, ConfigDict, Field


class Config(BaseModel):
    model_config = ConfigDict(extra="allow")
    base_url: str = Field(pattern="^https?://", description="a URL")


class Server(BaseModel):
    config: Config
"""


def write_root(folder: Path, *, env: str | None = ENV) -> Path:
    """Write one environment, one agent type and two model types; return the folder."""
    _component(folder / "resources_servers" / "mcqa", MCQA, MCQA_APP)
    _component(folder / "responses_api_agents" / "simple_agent", None, "")
    _component(folder / "responses_api_models" / "some_model", MODEL, MODEL_APP)
    _component(folder / "responses_api_models" / "other_model", OTHER_MODEL, MODEL_APP)
    if env is not None:
        (folder / "env.yaml").write_text(env)
    return folder


def ask(
    folder: Path,
    *overrides: str,
    config: str | None = None,
    resources_servers: tuple[str, ...] = ("mcqa",),
    model_types: tuple[str, ...] = ("some_model",),
    environ: dict[str, str] | None = None,
) -> ConfigRequest:
    """Return a request in `folder`; `config` is the text of a further file, `extra.yaml`."""
    if config is not None:
        (folder / "extra.yaml").write_text(config)
    return ConfigRequest(
        resources_servers=resources_servers,
        model_types=model_types,
        config_files=() if config is None else ("extra.yaml",),
        overrides=overrides,
        working_dir=folder,
        environ=environ or {},
    )


def _component(folder: Path, config: str | None, app: str) -> None:
    (folder / "configs").mkdir(parents=True)
    (folder / "app.py").write_text(app)
    if config is not None:
        (folder / "configs" / f"{folder.name}.yaml").write_text(config)
